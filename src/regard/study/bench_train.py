"""Training steps beside each other on the page of measurements."""

from rich.table import Table

from regard.study.bench_section import Bar, Bars, Real, Record, Section, count
from regard.study.bench_table import LEAST, MOST, Contest, Number, Row, contests, make_table, number, spread, with_share


def train_section(record: Record) -> Section:
    """Shows one table for each shape and size of batch."""
    tables: list[Table] = []
    found: list[Contest] = []
    panels, notes = [], []
    for cell in record.get("tables", []):
        rows = [_row(row) for row in cell["rows"]]
        whole = cell.get("epoch")
        shown = (
            [*rows, _row({**whole, "system": f"regard, an epoch of {whole.get('n_shapes')} shapes"})] if whole else rows
        )
        limit = limit_of(cell)
        last = Row("the limit", [Number(number(limit, ",.0f").text), *[Number("")] * 4])
        tables.append(
            make_table(
                f"{about(cell)}: real target tokens",
                (
                    "system",
                    "tokens/s (middle half) · share of the limit",
                    "ms a step",
                    "peak GiB",
                    "first step, s",
                    "ready, s",
                ),
                [*shown, last],
                [MOST, LEAST, LEAST, LEAST, LEAST],
            )
        )
        found += contests(f"training, {about(cell)}, tokens/s", rows, 0, MOST)
        panels.append(panel(cell, limit))
        notes += cell.get("notes", [])
    picture = "Real target tokens a second of each system, longer is better; the dashed line is the machine's limit"
    return Section(tables, panels, 2, picture, notes, found)


def about(cell: Record) -> str:
    """Names a cell."""
    parts = [f"{cell.get('shape')} shape", f"batches of {cell.get('batch_tokens', 0):,} slots"]
    parts += [f"dropout {cell['dropout']}"] if "dropout" in cell else []
    parts += [cell["precision"]] if "precision" in cell else []
    parts += [count(cell["threads"], "thread")] if cell.get("threads") else []
    return ", ".join(parts)


def limit_of(cell: Record) -> Real | None:
    """Gives the tokens a second at which all operations would run at the rate of a large product."""
    if not all(cell.get(name) for name in ("tokens", "flops", "flops_per_s")):
        return None
    return cell["tokens"] * cell["flops_per_s"] / cell["flops"]


def _row(row: Record) -> Row:
    ends = row.get("low_tokens_per_s"), row.get("high_tokens_per_s")
    speed = with_share(spread(row.get("tokens_per_s"), *ends, ",.0f"), row.get("of_limit"))
    peak = row.get("peak_bytes")
    gib = number(None if peak is None else peak / 2**30, ".1f")
    waits = [number(row.get(name), ".1f") for name in ("first_s", "ready_s")]
    apart = row["system"] if row["system"].startswith("regard,") else ""  # what does other work is judged apart
    return Row(row["system"], [speed, number(row.get("ms_per_step")), gib, *waits], apart)


def panel(cell: Record, limit: Real | None) -> Bars:
    """Draws the speeds of one cell."""
    bars = [
        Bar(row["system"], row["tokens_per_s"], row.get("low_tokens_per_s"), row.get("high_tokens_per_s"))
        for row in cell["rows"]
        if row.get("tokens_per_s")
    ]
    shape, _, rest = about(cell).partition(", ")
    return Bars(f"{shape}, {rest}:\ntarget tokens/s", bars, limit)
