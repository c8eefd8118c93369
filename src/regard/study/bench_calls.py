"""Calls that have no peers, on the page of measurements: looking inside a run, and writing."""

from rich.table import Table

from regard.study.bench_section import Record, Section
from regard.study.bench_table import LEAST, MOST, Number, Row, make_table, number, short, spread

READ = "reading the weights once"


def trace_section(record: Record) -> Section:
    """Shows what it costs to look inside, and to keep what was seen."""
    rows = [Row(name, [_ms(timing)]) for name, timing in record.get("seconds", {}).items()]
    sizes = f"{record.get('shape', '?')} shape, {record.get('heads', '?')} heads × {record.get('tokens', '?')} tokens"
    table = make_table(f"{sizes}: ms (middle half)", ("call", "ms"), rows, [None])
    notes = []
    if record.get("mib") is not None:
        notes.append(f"The trace is {record['mib']:.1f} MiB on disk.")
    if record.get("model"):
        notes.append(f"*untraced* and *traced* are `{record['model']}` on one sentence, {record.get('sentence', '')}")
    for family, n_bytes in record.get("peak_bytes", {}).items():
        notes.append(
            f"To see everything of {record.get('long')} tokens, {family}: {n_bytes / 2**20:,.0f} MiB at the peak."
        )
    return Section([table], notes=notes)


def write_section(record: Record) -> Section:
    """Shows what a cache saves, and how near writing is to reading the weights once a token."""
    shapes = {name: part for name, part in record.items() if isinstance(part, dict) and "seconds" in part}
    return Section([_writing(name, part) for name, part in shapes.items()])


def _writing(name: str, part: Record) -> Table:
    n, read = part["tokens"], part["seconds"].get(READ, {}).get("median")
    rows = []
    for way, timing in part["seconds"].items():
        if way == READ:
            continue
        share = None if read is None else read * n / timing["median"]
        cells = [
            _ms(timing),
            number(n / timing["median"], ",.0f"),
            number(None if share is None else 100 * share, ".0f", " %"),
        ]
        rows.append(Row(way, cells))
    if read is not None:
        rows.append(Row("the limit", [Number(short(read * n * 1e3)), Number(f"{1 / read:,.0f}"), Number("")]))
    heads = ("way", "ms (middle half)", "tokens/s", "share of the limit")
    return make_table(f"{name} decoder, {n} tokens", heads, rows, [LEAST, MOST, None])


def _ms(timing: Record) -> Number:
    return spread(*(None if timing.get(key) is None else timing[key] * 1e3 for key in ("median", "low", "high")))
