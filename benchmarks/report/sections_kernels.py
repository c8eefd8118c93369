"""Sections on attention: its layers, the growth of its cost, and its GPU kernels."""

from typing import Any

from rich.table import Table

from benchmarks.report import Bar, BarPanel, Line, LinePanel, Record, Section, make_line
from benchmarks.report.tables import (
    LOWER,
    Cell,
    Comparison,
    Row,
    compare,
    make_table,
    number_cell,
    percent,
    range_cell,
    with_share,
)
from regard.study.timing import SEEN

SYMBOLS = {"length": "n", "batch": "B"}
AXES = {"length": "tokens of a text", "batch": "texts in a batch"}
NO_BIAS = "no bias"  # computes less than the other kernels, so it is shown but not compared
NOT_KERNELS = {"signature", "rates", "accuracy", "growth", "limits", "shapes"}


def attention_section(record: Record) -> Section:
    """Report on whole layers by length, and on additive attention in blocks beside its formula."""
    tables: list[Table] = []
    comparisons: list[Comparison] = []
    panels = []
    layers = record.get("layers", [])
    for kind in dict.fromkeys(row["kind"] for row in layers):
        of_kind = [row for row in layers if row["kind"] == kind]
        lengths = list(dict.fromkeys(row["length"] for row in of_kind))
        rows = _layer_rows(of_kind, lengths)
        limits = [_layer_limit(of_kind, length) for length in lengths]
        headers = ("version", *(f"{length} tokens" for length in lengths))
        title = f"Layers, {kind}, forward + backward: ms · share of the limit"
        last = Row("the limit", [Cell(number_cell(limit).text) for limit in limits])
        tables.append(make_table(title, headers, [*rows, last], [LOWER] * len(lengths)))
        for column, length in enumerate(lengths):
            comparisons += compare(f"layer, {kind}, sequences of {length} tokens, ms", rows, column, LOWER)
        panels.append(_layer_panel(kind, of_kind, lengths, limits))
    if record.get("additive"):
        tables.append(_additive_table(record["additive"]))
    caption = "Milliseconds of a layer over the sequence length, at a constant number of tokens"
    return Section(tables, panels, caption=caption, comparisons=comparisons)


def _layer_rows(layers: list[Record], lengths: list[int]) -> list[Row]:
    rows = []
    for version in dict.fromkeys(row["version"] for row in layers):
        by_length = {row["length"]: row for row in layers if row["version"] == version}
        rows.append(Row(version, [_layer_cell(by_length.get(length, {})) for length in lengths]))
    return rows


def _layer_cell(row: Record) -> Cell:
    return with_share(range_cell(row.get("ms"), row.get("low_ms"), row.get("high_ms")), row.get("of_limit"))


def _layer_limit(layers: list[Record], length: int) -> float | None:
    """Return the milliseconds of the limit, which follow from any row that has its share of it."""
    rows = (row for row in layers if row["length"] == length and row.get("of_limit"))
    return next((row["ms"] * row["of_limit"] for row in rows), None)


def _layer_panel(kind: str, layers: list[Record], lengths: list[int], limits: list[float | None]) -> LinePanel:
    lines = []
    for version in dict.fromkeys(row["version"] for row in layers):
        rows = [row for row in layers if row["version"] == version]
        lines.append(make_line(version, [row["length"] for row in rows], [row.get("ms") for row in rows]))
    limit = make_line("the limit", lengths, limits) if any(limits) else None
    return LinePanel(f"Layer, {kind}: ms", "tokens of a text", "n", lines, limit)


def _additive_table(versions: dict[str, Any]) -> Table:
    rows = []
    for name, row in versions.items():
        time = range_cell(row.get("ms"), row.get("low_ms"), row.get("high_ms"))
        rows.append(Row(name, [time, number_cell(row.get("extra_mib"), ",.0f")]))
    title = "Additive attention, forward + backward, both ours"
    return make_table(title, ("version", "ms", "extra MiB"), rows, [LOWER, LOWER])


def growth_section(record: Record) -> Section:
    """Report on time and memory of each kind of attention over lengths and batches, with fitted exponents."""
    curves = record.get("curves", [])
    axes = [axis for axis in SYMBOLS if any(curve["axis"] == axis for curve in curves)]
    tables, panels = [], []
    for axis in axes:
        along = [curve for curve in curves if curve["axis"] == axis]
        limit = record.get("limit", {}).get(axis, {})
        tables.append(_growth_table(axis, along, limit, _fixed_sizes(record, axis)))
        panels += [_time_panel(axis, along, limit), _memory_panel(axis, along)]
    stops = [
        f"{curve['path']} stopped before {curve['axis']} {curve['stopped']}."
        for curve in curves
        if curve.get("stopped")
    ]
    caption = "Time and memory of each path over the length and over the batch, with fitted powers"
    return Section(tables, panels, 2, caption, stops)


def _fixed_sizes(record: Record, axis: str) -> str:
    sizes = record.get("sizes", {})
    other = "batch" if axis == "length" else "length"
    if not all(name in sizes for name in ("heads", "width", other)):
        return ""
    return f", {other} {sizes[other]}, heads × width {sizes['heads']} × {sizes['width']}"


def _growth_table(axis: str, curves: list[Record], limit: Record, fixed: str) -> Table:
    sizes = sorted({size for curve in curves for size in curve["sizes"]})
    rows = []
    for curve in curves:
        exponents = _time_line(curve).exponent, _memory_line(curve).exponent
        powers = [Cell("–" if power is None else f"{SYMBOLS[axis]}^{power:.2f}") for power in exponents]
        rows.append(Row(curve["path"], [*(_growth_cell(curve, size) for size in sizes), *powers]))
    limits = dict(zip(limit.get("sizes", []), limit.get("ms", []), strict=False))
    if limits:
        cells = [Cell(number_cell(limits.get(size)).text) for size in sizes]
        rows.append(Row("limit of the products of all pairs", [*cells, Cell(""), Cell("")]))
    title = f"Forward + backward over the {axis}{fixed}: ms · extra MiB"
    headers = ("path", *(f"{SYMBOLS[axis]} = {size:,}" for size in sizes), "time", "memory")
    return make_table(title, headers, rows, [None] * (len(sizes) + 2))  # paths compute different things: none is best


def _growth_cell(curve: Record, size: int) -> Cell:
    if size not in curve["sizes"]:
        return number_cell(None)
    index = curve["sizes"].index(size)
    time = number_cell(curve["ms"][index])
    mib = curve["extra_mib"][index] if index < len(curve.get("extra_mib", [])) else None
    return time if mib is None else Cell(f"{time.text} · {mib:,.0f}", time.value)


def _time_line(curve: Record) -> Line:
    return make_line(curve["path"], curve["sizes"], curve["ms"], power=curve.get("exponents", {}).get("time"))


def _memory_line(curve: Record) -> Line:
    power = curve.get("exponents", {}).get("memory")
    return make_line(curve["path"], curve["sizes"], curve.get("extra_mib", []), SEEN, power)


def _time_panel(axis: str, curves: list[Record], limit: Record) -> LinePanel:
    limit_line = make_line("limit, all pairs", limit["sizes"], limit["ms"]) if limit.get("ms") else None
    title = f"Forward + backward over the {axis}: ms"
    return LinePanel(title, AXES[axis], SYMBOLS[axis], [_time_line(curve) for curve in curves], limit_line)


def _memory_panel(axis: str, curves: list[Record]) -> LinePanel:
    title = f"Peak memory over the {axis}: MiB"
    return LinePanel(title, AXES[axis], SYMBOLS[axis], [_memory_line(curve) for curve in curves])


def kernels_section(record: Record) -> Section:
    """Report on every kernel in the file: its versions, forward alone and with backward."""
    tables: list[Table] = []
    panels: list[BarPanel | LinePanel] = []
    notes: list[str] = []
    comparisons: list[Comparison] = []
    for name, kernel in record.items():
        versions = {} if name in NOT_KERNELS else _versions(kernel)
        if not versions:
            continue
        limits = {**record.get("limits", {}).get(name, {}), **(kernel.get("limits") or {})}
        tables.append(_kernel_table(name, versions, limits))
        panels.append(_kernel_panel(name, versions, limits))
        rows = [Row(version, _kernel_cells(row, limits)) for version, row in versions.items() if version != NO_BIAS]
        comparisons += compare(f"kernel, {name}, forward, ms", rows, 0, LOWER)
        comparisons += compare(f"kernel, {name}, with backward, ms", rows, 1, LOWER)
        failures = {version: row["failed"] for version, row in versions.items() if row.get("failed")}
        notes += [f"{name}, {version}: {reason.splitlines()[0]}" for version, reason in failures.items()]
    panels += _kernel_growth_panels(record.get("growth", {}))
    if record.get("accuracy"):
        tables.append(_accuracy_table(record["accuracy"]))
    if record.get("rates"):
        notes.insert(0, f"Rates measured in the same run: {', '.join(_format_rates(record['rates']))}.")
    caption = "Milliseconds of each version, forward and backward; growth over the length with fitted powers"
    return Section(tables, panels, 2, caption, notes, comparisons)


def _versions(kernel: Any) -> dict[str, Record]:
    """Return the versions of a kernel; empty for whatever else a file may hold."""
    rows = kernel.items() if isinstance(kernel, dict) else ()
    return {
        version: row
        for version, row in rows
        if isinstance(row, dict) and any(key in row for key in ("forward", "both", "failed"))
    }


def _kernel_table(name: str, versions: dict[str, Record], limits: Record) -> Table:
    rows = [Row(version, _kernel_cells(row, limits)) for version, row in versions.items()]
    if limits:
        cells = [Cell(number_cell(limits.get(key)).text) for key in ("forward", "both")]
        rows.append(Row("the limit", [*cells, Cell(""), Cell("")]))
    headers = ("version", "forward, ms", "with backward, ms", "share of the limit", "extra MiB")
    return make_table(name, headers, rows, [LOWER, LOWER, None, LOWER])


def _kernel_cells(row: Record, limits: Record) -> list[Cell]:
    if row.get("failed"):
        return [Cell("did not run"), *[number_cell(None)] * 3]
    forward, both = row.get("forward", {}), row.get("both", {})
    share = limits["both"] / both["ms"] if limits.get("both") and both.get("ms") else None
    times = [range_cell(timing.get("ms"), timing.get("low"), timing.get("high")) for timing in (forward, both)]
    return [*times, Cell(percent(share)), number_cell(row.get("extra_mib"), ",.0f")]


def _kernel_panel(name: str, versions: dict[str, Record], limits: Record) -> BarPanel:
    timings = {version: row["both"] for version, row in versions.items() if row.get("both", {}).get("ms")}
    bars = [Bar(version, both["ms"], both.get("low"), both.get("high")) for version, both in timings.items()]
    return BarPanel(f"{name}, forward + backward: ms", bars, limits.get("both"), log=True)


def _kernel_growth_panels(growth: dict[str, Any]) -> list[LinePanel]:
    curves = {name: rows for name, rows in growth.items() if isinstance(rows, list) and rows}
    panels = []
    for title, key in (("Time over the length: ms", "ms"), ("Peak memory over the length: MiB", "extra_mib")):
        lines = [
            make_line(name, [row.get("length") for row in rows], [row.get(key) for row in rows])
            for name, rows in curves.items()
        ]
        panels += [LinePanel(title, "tokens of a text", "n", lines)] if lines else []
    return panels


def _accuracy_table(versions: dict[str, Record]) -> Table:
    names = list(dict.fromkeys(name for row in versions.values() for name in row))
    rows = [Row(version, [number_cell(row.get(name), ".1e") for name in names]) for version, row in versions.items()]
    title = "Relative distance from the definition in float64"
    return make_table(title, ("version", *names), rows, [LOWER] * len(names))


def _format_rates(rates: Record) -> list[str]:
    """Return each rate, of which some are nested, in units of 10^12 per second."""
    texts = []
    for name, rate in rates.items():
        flat = {f"{name} {key}": value for key, value in rate.items()} if isinstance(rate, dict) else {name: rate}
        texts += [f"{key} {value / 1e12:.3g} T/s" for key, value in flat.items() if isinstance(value, (int, float))]
    return texts
