"""Sections on speed against other systems: decoding and training; and on generating text."""

from itertools import groupby
from typing import Any

from rich.table import Table

from benchmarks.report import Bar, BarPanel, Record, Section
from benchmarks.report.tables import (
    HIGHER,
    LOWER,
    Cell,
    Comparison,
    Row,
    compare,
    count,
    format_number,
    make_table,
    number_cell,
    range_cell,
    timing_cell,
    to_ms,
    with_share,
)

MAX_COLUMNS = 5  # of panels
PRECISIONS = ("float32", "bfloat16", "int8")
WEIGHTS_READ = "reading the weights once"  # the limit of writing one token


def decode_section(record: Record) -> Section:
    """Report on decoders: a table for each shape and number of threads, a column for each batch and beam."""
    tables: list[Table] = []
    comparisons: list[Comparison] = []
    n_columns = 1
    runs = record.get("tables", [])
    for (shape, threads), group in groupby(runs, key=lambda run: (run.get("shape"), run.get("threads"))):
        columns = list(group)
        n_columns = max(n_columns, min(MAX_COLUMNS, len(columns)))
        where = f"{shape} shape" + (f", {count(threads, 'thread')}" if threads else "")
        headers = [f"{_batch_and_beam(run)}, {'ms per sentence' if _is_single(run) else 'tokens/s'}" for run in columns]
        better = [LOWER if _is_single(run) else HIGHER for run in columns]
        names = list(dict.fromkeys(row["system"] for run in columns for row in run["rows"]))
        rows = [Row(name, [_decode_cell(run, name) for run in columns], _precision(name)) for name in names]
        limits = Row("the limit", [Cell(_speed_cell(run, run.get("limit_s")).text) for run in columns])
        title = f"{where}: speed (middle half) · share of the limit"
        tables.append(make_table(title, ("system", *headers), [*rows, limits], better))
        for column, header in enumerate(headers):
            comparisons += compare(f"decoding, {where}, {header}", rows, column, better[column])
    if record.get("file"):
        tables.append(_file_table(record["file"]))
    caption = "Time of each system for the same tokens, shorter is better; the dashed line is the machine's limit"
    panels = [_decode_panel(run) for run in runs]
    notes = [*record.get("notes", []), *_agreement_note(runs), *_above_limit_note(runs)]
    return Section(tables, panels, n_columns, caption, notes, comparisons)


def _precision(system: str) -> str:
    return next((precision for precision in PRECISIONS if precision in system), "")


def _is_single(run: Record) -> bool:
    """Return whether sentences are translated one at a time, so that latency counts and not throughput."""
    return run.get("batch") == 1


def _batch_and_beam(run: Record) -> str:
    return f"batch {run.get('batch')}, " + ("greedy" if run.get("beam") == 1 else f"beam {run.get('beam')}")


def _speed_cell(run: Record, s: Any, low: Any = None, high: Any = None) -> Cell:
    """Return milliseconds per sentence if they come one at a time, else tokens per second."""
    if s is None:
        return number_cell(None)
    if _is_single(run):
        n = run.get("sentences") or 1
        return range_cell(*[None if x is None else x / n * 1e3 for x in (s, low, high)])
    tokens = run["tokens"]
    return range_cell(tokens / s, tokens / high if high else None, tokens / low if low else None, ",.0f")


def _decode_cell(run: Record, system: str) -> Cell:
    row = next((row for row in run["rows"] if row["system"] == system), {})
    limit, s = run.get("limit_s"), row.get("s")
    share = limit / s if limit and s else row.get("of_limit")
    return with_share(_speed_cell(run, s, row.get("low_s"), row.get("high_s")), share)


def _decode_panel(run: Record) -> BarPanel:
    rows = [row for row in run["rows"] if row.get("s")]
    bars = [Bar(row["system"], row["s"] * 1e3, to_ms(row.get("low_s")), to_ms(row.get("high_s"))) for row in rows]
    threads = f", {count(run['threads'], 'thread')}" if run.get("threads") else ""
    title = f"{run.get('shape')}{threads}\n{_batch_and_beam(run)}: ms"
    return BarPanel(title, bars, to_ms(run.get("limit_s")), log=True)


def _agreement_note(runs: list[Record]) -> list[str]:
    """Say what share of the tokens equals that of our plain search, for each system with the same weights."""
    shares: dict[str, list[float]] = {}
    for row in (row for run in runs for row in run["rows"]):
        if row.get("agree"):  # a system with other weights agrees nowhere
            shares.setdefault(row["system"], []).append(row["agree"])
    texts = [f"{name} {100 * min(values):.0f} %" for name, values in shares.items()]
    return [f"Tokens that agree with ours, at least in each table: {', '.join(texts)}."] if texts else []


def _above_limit_note(runs: list[Record]) -> list[str]:
    shares = [run["limit_s"] / row["s"] for run in runs for row in run["rows"] if run.get("limit_s") and row.get("s")]
    if max(shares, default=0.0) <= 1:
        return []
    return [
        "A share above 100 % means that a system reads fewer bytes than the weights have in the limit's precision, or "
        "reads them faster than the plain sum with which the limit was measured."
    ]


def _file_table(ways: list[Record]) -> Table:
    rows = []
    for way in ways:
        first, again = [*way.get("s", []), None, None][:2]
        same = None if way.get("same") is None else 100 * way["same"]
        times = [number_cell(first), number_cell(again)]
        quality = [number_cell(same, ".1f", " %"), number_cell(way.get("bleu"), ".2f")]
        rows.append(Row(f"regard {way.get('precision')}, {way.get('way')}", [*times, *quality]))
    headers = ("way", "first, s", "again, s", "lines as the first way", "BLEU")
    return make_table("A file of real sentences", headers, rows, [LOWER, LOWER, None, None])


def train_section(record: Record) -> Section:
    """Report on training steps: a table for each shape and batch size."""
    tables: list[Table] = []
    comparisons: list[Comparison] = []
    panels, notes = [], []
    speed = "tokens/s (middle half) · share of the limit"
    headers = ("system", speed, "ms per step", "peak GiB", "first step, s", "ready, s")
    for run in record.get("tables", []):
        about, limit = _describe_run(run), _train_limit(run)
        rows = [_train_row(row) for row in run["rows"]]
        shown = list(rows)
        if epoch := run.get("epoch"):
            shown.append(_train_row({**epoch, "system": f"regard, an epoch of {epoch.get('n_shapes')} shapes"}))
        shown.append(Row("the limit", [Cell(number_cell(limit, ",.0f").text), *[Cell("")] * 4]))
        tables.append(make_table(f"{about}: target tokens without padding", headers, shown, [HIGHER, *[LOWER] * 4]))
        comparisons += compare(f"training, {about}, tokens/s", rows, 0, HIGHER)
        panels.append(BarPanel(f"{about}:\ntarget tokens/s", _train_bars(run), limit))
        notes += run.get("notes", [])
    caption = (
        "Target tokens per second of each system without padding, longer is better; the dashed line is the machine's "
        "limit"
    )
    return Section(tables, panels, 2, caption, notes, comparisons)


def _describe_run(run: Record) -> str:
    parts = [f"{run.get('shape')} shape", f"batches of {run.get('batch_tokens', 0):,} slots"]
    parts += [f"dropout {run['dropout']}"] if "dropout" in run else []
    parts += [run["precision"]] if "precision" in run else []
    parts += [count(run["threads"], "thread")] if run.get("threads") else []
    return ", ".join(parts)


def _train_limit(run: Record) -> float | None:
    """Return the tokens per second at which all operations run at the rate of a large matrix product."""
    if not all(run.get(name) for name in ("tokens", "flops", "flops_per_s")):
        return None
    return run["tokens"] * run["flops_per_s"] / run["flops"]


def _train_row(row: Record) -> Row:
    quartiles = row.get("low_tokens_per_s"), row.get("high_tokens_per_s")
    speed = with_share(range_cell(row.get("tokens_per_s"), *quartiles, ",.0f"), row.get("of_limit"))
    peak = row.get("peak_bytes")
    gib = number_cell(None if peak is None else peak / 2**30, ".1f")
    waits = [number_cell(row.get(name), ".1f") for name in ("first_s", "ready_s")]
    group = row["system"] if row["system"].startswith("regard,") else ""  # variants that do other work stand alone
    return Row(row["system"], [speed, number_cell(row.get("ms_per_step")), gib, *waits], group)


def _train_bars(run: Record) -> list[Bar]:
    return [
        Bar(row["system"], row["tokens_per_s"], row.get("low_tokens_per_s"), row.get("high_tokens_per_s"))
        for row in run["rows"]
        if row.get("tokens_per_s")
    ]


def write_section(record: Record) -> Section:
    """Report on generating text: what the cache saves, and how near a token comes to reading the weights once."""
    shapes = {name: part for name, part in record.items() if isinstance(part, dict) and "seconds" in part}
    return Section([_write_table(name, part) for name, part in shapes.items()])


def _write_table(shape: str, part: Record) -> Table:
    n, limit = part["tokens"], part["seconds"].get(WEIGHTS_READ, {}).get("median")
    rows = []
    for way, timing in part["seconds"].items():
        if way != WEIGHTS_READ:
            share = None if limit is None else 100 * limit * n / timing["median"]
            speed = number_cell(n / timing["median"], ",.0f")
            rows.append(Row(way, [timing_cell(timing), speed, number_cell(share, ".0f", " %")]))
    if limit is not None:
        rows.append(Row("the limit", [Cell(format_number(limit * n * 1e3)), Cell(f"{1 / limit:,.0f}"), Cell("")]))
    headers = ("way", "ms (middle half)", "tokens/s", "share of the limit")
    return make_table(f"{shape} decoder, {n} tokens", headers, rows, [LOWER, HIGHER, None])
