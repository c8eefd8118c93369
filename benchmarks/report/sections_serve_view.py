"""Sections on the server under load, on viewers of attention, and on the cost of a trace."""

from collections.abc import Sequence

from rich.table import Table

from benchmarks.report import Bar, BarPanel, Line, LinePanel, Record, Section, make_line
from benchmarks.report.tables import (
    HIGHER,
    LOWER,
    Cell,
    Comparison,
    Row,
    compare,
    make_table,
    number_cell,
    percent,
    timing_cell,
)

MODES = {
    "slots": "batched, each text as soon as a slot is free",
    "together": "batched",
    "alone": "one by one",
}
# header and factor of each number
VIEWS = {"bytes": ("MB", 1e-6), "make_seconds": ("made in s", 1.0), "draw_seconds": ("first picture after s", 1.0)}


def serve_section(record: Record) -> Section:
    """Report on the modes of the server beside the same texts without a server."""
    runs = record.get("compared", [])
    tables = [_serve_table(run) for run in runs]
    panels = [_serve_panel(run) for run in runs]
    caption = "Texts per second, longer is better; the dashed line is the same texts in one list without a server"
    return Section(tables, panels, 2, caption, _memory_note(record))


def _serve_table(run: Record) -> Table:
    ceiling = run.get("ceiling")
    rows = [_serve_row(name, run[mode], ceiling) for mode, name in MODES.items() if mode in run]
    rows.append(Row("no server: the limit", [Cell(number_cell(ceiling, ",.1f").text), *[Cell("")] * 7]))
    headers = ("way", "texts/s", "share", "p50 ms", "p95 ms", "p99 ms", "texts per batch", "lost", "wrong")
    better = [HIGHER, None, LOWER, LOWER, LOWER, None, None, None]
    return make_table(f"Concurrent clients, {_search(run)}", headers, rows, better)


def _search(run: Record) -> str:
    return "greedy" if run.get("beam") == 1 else f"beam {run.get('beam')}"


def _serve_row(name: str, load: Record, ceiling: float | None) -> Row:
    speed = load.get("per_second")
    latencies = [number_cell(load.get(key), ",.0f") for key in ("p50_ms", "p95_ms", "p99_ms")]
    share = Cell(percent(speed / ceiling if speed and ceiling else None))
    errors = [number_cell(load.get(key), "d") for key in ("lost", "wrong")]
    batch = number_cell(load.get("texts_together"), ".1f")
    return Row(name, [number_cell(speed, ",.1f"), share, *latencies, batch, *errors])


def _serve_panel(run: Record) -> BarPanel:
    bars = [Bar(f"regard, {name}", run[mode]["per_second"]) for mode, name in MODES.items() if mode in run]
    return BarPanel(f"{_search(run)}: texts/s", bars, run.get("ceiling"))


def _memory_note(record: Record) -> list[str]:
    mib, run = [value for value in record.get("memory_mib", []) if value is not None], record.get("long_run", {})
    if not mib or not run:
        return []
    ends = f"{mib[0]:,.0f} MiB before, {mib[-1]:,.0f} after"
    errors = f"{run.get('lost')} lost, {run.get('wrong')} wrong"
    return [
        f"Memory of the server over {run.get('requests', 0):,} requests: {ends}, at most {max(mib):,.0f}; {errors}."
    ]


def view_section(record: Record) -> Section:
    """Report on viewers: the size of a file, the time to make it, and the time until a browser draws it."""
    rows = record.get("rows", [])
    tables: list[Table] = []
    comparisons: list[Comparison] = []
    sizes = list(dict.fromkeys(row["tokens"] for row in rows))
    headers = [header for header, _ in VIEWS.values()]
    for n in sizes:
        viewers = [Row(row["viewer"], _view_cells(row)) for row in rows if row["tokens"] == n]
        tables.append(make_table(f"{n} tokens", ("viewer", *headers), viewers, [LOWER] * 3))
        for column, header in enumerate(headers):
            comparisons += compare(f"view of {n} tokens, {header}", viewers, column, LOWER)
    panels = [_view_bars(rows, key) if len(sizes) == 1 else _view_lines(rows, key) for key in VIEWS]
    notes = [f"{row['viewer']} drew nothing at {row['tokens']} tokens." for row in rows if not row.get("draw_seconds")]
    caption = "Size, making and first picture of each viewer over the tokens"
    return Section(tables, panels, 3, caption, notes, comparisons)


def _view_cells(row: Record) -> Sequence[Cell]:
    return [number_cell(None if row.get(key) is None else row[key] * factor) for key, (_, factor) in VIEWS.items()]


def _view_lines(rows: list[Record], key: str) -> LinePanel:
    header, factor = VIEWS[key]
    lines: dict[str, Line] = {}
    for viewer in dict.fromkeys(row["viewer"] for row in rows):
        points = [row for row in rows if row["viewer"] == viewer and row.get(key)]
        values = [row[key] * factor for row in points]
        same = next((name for name, line in lines.items() if line.values == values), None)
        name = viewer if same is None else viewer.partition(",")[0]  # several views from one file
        lines.pop(same or "", None)
        lines[name] = make_line(name, [row["tokens"] for row in points], values)
    return LinePanel(header, "tokens", "n", list(lines.values()))


def _view_bars(rows: list[Record], key: str) -> BarPanel:
    header, factor = VIEWS[key]
    return BarPanel(header, [Bar(row["viewer"], row[key] * factor) for row in rows if row.get(key)], log=True)


def trace_section(record: Record) -> Section:
    """Report on the time and memory of making, saving and opening a trace."""
    rows = [Row(name, [timing_cell(timing)]) for name, timing in record.get("seconds", {}).items()]
    sizes = f"{record.get('shape', '?')} shape, {record.get('heads', '?')} heads × {record.get('tokens', '?')} tokens"
    table = make_table(f"{sizes}: ms (middle half)", ("call", "ms"), rows, [None])
    notes = []
    if record.get("mib") is not None:
        notes.append(f"The trace is {record['mib']:.1f} MiB on disk.")
    if record.get("model"):
        notes.append(f"*untraced* and *traced* are `{record['model']}` on one sentence, {record.get('sentence', '')}")
    for family, n_bytes in record.get("peak_bytes", {}).items():
        what = f"Peak memory for all weights of {record.get('long')} tokens, {family}"
        notes.append(f"{what}: {n_bytes / 2**20:,.0f} MiB.")
    return Section([table], notes=notes)
