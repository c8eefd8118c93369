"""A server under load, on the page of measurements."""

from rich.table import Table

from regard.study.bench_section import Bar, Bars, Real, Record, Section, percent
from regard.study.bench_table import LEAST, MOST, Number, Row, make_table, number

WAYS = {
    "slots": "texts of many clients, each as soon as a slot is free",
    "together": "texts of many clients together",
    "alone": "each text by itself",
}


def serve_section(record: Record) -> Section:
    """Shows the ways to serve beside the same texts without a server."""
    compared = record.get("compared", [])
    tables = [_table(cell) for cell in compared]
    panels = [_panel(cell) for cell in compared]
    picture = "Texts a second, longer is better; the dashed line is the same texts in one list without a server"
    return Section(tables, panels, 2, picture, _long_run(record))


def _table(cell: Record) -> Table:
    ceiling = cell.get("ceiling")
    rows = [_row(name, cell[way], ceiling) for way, name in WAYS.items() if way in cell]
    rows.append(Row("no server: the limit", [Number(number(ceiling, ",.1f").text), *[Number("")] * 7]))
    heads = ("way", "texts/s", "share", "p50 ms", "p95 ms", "p99 ms", "texts a batch", "lost", "wrong")
    better = [MOST, None, LEAST, LEAST, LEAST, None, None, None]
    return make_table(f"Clients at once, {_beam(cell)}", heads, rows, better)


def _beam(cell: Record) -> str:
    return "greedy" if cell.get("beam") == 1 else f"beam {cell.get('beam')}"


def _row(name: str, load: Record, ceiling: Real | None) -> Row:
    speed = load.get("per_second")
    waits = [number(load.get(key), ",.0f") for key in ("p50_ms", "p95_ms", "p99_ms")]
    share = Number(percent(speed / ceiling if speed and ceiling else None))
    counts = [number(load.get("texts_together"), ".1f"), number(load.get("lost"), "d"), number(load.get("wrong"), "d")]
    return Row(name, [number(speed, ",.1f"), share, *waits, *counts])


def _panel(cell: Record) -> Bars:
    bars = [Bar(f"regard, {name}", cell[way]["per_second"]) for way, name in WAYS.items() if way in cell]
    return Bars(f"{_beam(cell)}: texts/s", bars, cell.get("ceiling"))


def _long_run(record: Record) -> list[str]:
    held, whole = [each for each in record.get("memory_mib", []) if each is not None], record.get("long_run", {})
    if not held or not whole:
        return []
    ends = f"{held[0]:,.0f} MiB before, {held[-1]:,.0f} after"
    lost = f"{whole.get('lost')} lost, {whole.get('wrong')} wrong"
    return [
        f"Memory of the server over {whole.get('requests', 0):,} requests: {ends}, at most {max(held):,.0f}; {lost}."
    ]
