"""How cost grows with length and batch, on the page of measurements."""

from rich.table import Table

from regard.study.bench_section import Line, Lines, Record, Section, line
from regard.study.bench_table import Number, Row, make_table, number
from regard.study.timing import SEEN

LETTERS = {"length": "n", "batch": "B"}
NAMES = {"length": "tokens of a text", "batch": "texts in a batch"}


def growth_section(record: Record) -> Section:
    """Shows time and memory of every path over lengths and batches, with fitted powers."""
    curves = record.get("curves", [])
    axes = [axis for axis in LETTERS if any(curve["axis"] == axis for curve in curves)]
    tables, panels = [], []
    for axis in axes:
        along = [curve for curve in curves if curve["axis"] == axis]
        limit = record.get("limit", {}).get(axis, {})
        tables.append(_table(axis, along, limit, stayed(record, axis)))
        panels += [_times(axis, along, limit), _memory(axis, along)]
    stops = [
        f"{curve['path']} stopped before {curve['axis']} {curve['stopped']}."
        for curve in curves
        if curve.get("stopped")
    ]
    picture = "Time and memory of each path over the length and over the batch, with fitted powers"
    return Section(tables, panels, 2, picture, stops)


def stayed(record: Record, axis: str) -> str:
    """Says what stayed the same while one size grew."""
    sizes = record.get("sizes", {})
    other = "batch" if axis == "length" else "length"
    known = {"heads": "heads of", "width": "wide"}
    if not all(name in sizes for name in (*known, other)):
        return ""
    return f", {other} {sizes[other]}, heads × width {sizes['heads']} × {sizes['width']}"


def _table(axis: str, curves: list[Record], limit: Record, stay: str) -> Table:
    every = sorted({size for curve in curves for size in curve["sizes"]})
    rows = [Row(curve["path"], [*(_cell(curve, size) for size in every), *_powers(axis, curve)]) for curve in curves]
    known = dict(zip(limit.get("sizes", []), limit.get("ms", []), strict=False))
    if known:
        cells = [Number(number(known.get(size)).text) for size in every]
        rows.append(Row("limit of the products of all pairs", [*cells, Number(""), Number("")]))
    title = f"Forward + backward over the {axis}{stay}: ms · extra MiB"
    heads = ("path", *(f"{LETTERS[axis]} = {size:,}" for size in every), "time", "memory")
    return make_table(title, heads, rows, [None] * (len(every) + 2))  # paths differ in what they compute: none is best


def _cell(curve: Record, size: int) -> Number:
    if size not in curve["sizes"]:
        return number(None)
    at = curve["sizes"].index(size)
    shown = number(curve["ms"][at])
    mib = curve["extra_mib"][at] if at < len(curve.get("extra_mib", [])) else None
    return shown if mib is None else Number(f"{shown.text} · {mib:,.0f}", shown.value)


def _powers(axis: str, curve: Record) -> list[Number]:
    found = _time_line(curve).exponent, _memory_line(curve).exponent
    return [Number("–" if power is None else f"{LETTERS[axis]}^{power:.2f}") for power in found]


def _time_line(curve: Record) -> Line:
    return line(curve["path"], curve["sizes"], curve["ms"], power=curve.get("exponents", {}).get("time"))


def _memory_line(curve: Record) -> Line:
    power = curve.get("exponents", {}).get("memory")
    return line(curve["path"], curve["sizes"], curve.get("extra_mib", []), SEEN, power)


def _times(axis: str, curves: list[Record], limit: Record) -> Lines:
    bound = line("limit, all pairs", limit["sizes"], limit["ms"]) if limit.get("ms") else None
    title = f"Forward + backward over the {axis}: ms"
    return Lines(title, NAMES[axis], LETTERS[axis], [_time_line(curve) for curve in curves], bound)


def _memory(axis: str, curves: list[Record]) -> Lines:
    title = f"Peak memory over the {axis}: MiB"
    return Lines(title, NAMES[axis], LETTERS[axis], [_memory_line(curve) for curve in curves])
