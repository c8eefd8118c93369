"""Decoders beside each other on the page of measurements."""

from itertools import groupby
from typing import Any

from rich.table import Table

from regard.study.bench_section import Bar, Bars, Real, Record, Section, count
from regard.study.bench_table import LEAST, MOST, Contest, Number, Row, contests, make_table, number, spread, with_share

WIDEST = 5  # panels beside each other


def decode_section(record: Record) -> Section:
    """Shows one table for each shape and number of threads, with a column for each batch and beam."""
    tables: list[Table] = []
    found: list[Contest] = []
    columns = 1
    every = record.get("tables", [])
    for about, group in groupby(every, key=lambda cell: (cell.get("shape"), cell.get("threads"))):
        cells = list(group)
        columns = max(columns, min(WIDEST, len(cells)))
        names = list(dict.fromkeys(row["system"] for cell in cells for row in cell["rows"]))
        rows = [Row(name, [_cell(cell, name) for cell in cells], precision(name)) for name in names]
        limits = [Number(_speed(cell, cell.get("limit_s")).text) for cell in cells]
        table = make_table(
            f"{_where(*about)}: speed (middle half) · share of the limit",
            ("system", *(f"{head(cell)}, {unit(cell)}" for cell in cells)),
            [*rows, Row("the limit", limits)],
            [LEAST if is_single(cell) else MOST for cell in cells],
        )
        tables.append(table)
        for at, cell in enumerate(cells):
            what = f"decoding, {_where(*about)}, {head(cell)}, {unit(cell)}"
            found += contests(what, rows, at, LEAST if is_single(cell) else MOST)
    if record.get("file"):
        tables.append(file_table(record["file"]))
    picture = "Time of each system for the same tokens, shorter is better; the dashed line is the machine's limit"
    panels = [panel(cell) for cell in every]
    notes = [*record.get("notes", []), *agreement(every), *beyond(every)]
    return Section(tables, panels, columns, picture, notes, found)


def precision(name: str) -> str:
    """Gives the precision that a system's name ends with or has within."""
    return next((each for each in ("float32", "bfloat16", "int8") if each in name), "")


def is_single(cell: Record) -> bool:
    """Tells whether one sentence at a time is translated, so that waiting counts and not throughput."""
    return cell.get("batch") == 1


def head(cell: Record) -> str:
    """Names a cell's batch and beam."""
    return f"batch {cell.get('batch')}, " + ("greedy" if cell.get("beam") == 1 else f"beam {cell.get('beam')}")


def unit(cell: Record) -> str:
    """Gives the unit in which a cell's speed is told."""
    return "ms a sentence" if is_single(cell) else "tokens/s"


def _where(shape: Any, threads: Any) -> str:
    return f"{shape} shape" + (f", {count(threads, 'thread')}" if threads else "")


def _speed(cell: Record, s: Any, low: Any = None, high: Any = None) -> Number:
    """Gives milliseconds a sentence, or tokens a second."""
    if s is None:
        return number(None)
    if is_single(cell):
        n = cell.get("sentences") or 1
        return spread(*[None if x is None else x / n * 1e3 for x in (s, low, high)])
    tokens = cell["tokens"]
    return spread(tokens / s, tokens / high if high else None, tokens / low if low else None, ",.0f")


def _cell(cell: Record, name: str) -> Number:
    row = next((row for row in cell["rows"] if row["system"] == name), {})
    limit, s = cell.get("limit_s"), row.get("s")
    share = limit / s if limit and s else row.get("of_limit")
    return with_share(_speed(cell, s, row.get("low_s"), row.get("high_s")), share)


def panel(cell: Record) -> Bars:
    """Draws the times of one cell."""
    rows = [row for row in cell["rows"] if row.get("s")]
    bars = [Bar(row["system"], row["s"] * 1e3, _ms(row.get("low_s")), _ms(row.get("high_s"))) for row in rows]
    threads = f", {count(cell['threads'], 'thread')}" if cell.get("threads") else ""
    return Bars(f"{cell.get('shape')}{threads}\n{head(cell)}: ms", bars, _ms(cell.get("limit_s")), log=True)


def _ms(seconds: Real | None) -> Real | None:
    return None if seconds is None else seconds * 1e3


def agreement(tables: list[Record]) -> list[str]:
    """Says how many of the tokens are those of our own plain search, where a system has the same weights."""
    shares: dict[str, list[float]] = {}
    for row in (row for cell in tables for row in cell["rows"]):
        if row.get("agree"):  # a system with other weights agrees nowhere
            shares.setdefault(row["system"], []).append(row["agree"])
    told = [f"{name} {100 * min(each):.0f} %" for name, each in shares.items()]
    return [f"Tokens that agree with ours, at least in each table: {', '.join(told)}."] if told else []


def beyond(tables: list[Record]) -> list[str]:
    """Explains shares above the whole, where there are any."""
    shares = [
        cell["limit_s"] / row["s"] for cell in tables for row in cell["rows"] if cell.get("limit_s") and row.get("s")
    ]
    if max(shares, default=0.0) <= 1:
        return []
    return [
        "A share above 100 % is one of a system that reads fewer bytes than the weights have in the limit's precision, "
        "or reads them faster than the plain sum by which the limit was measured."
    ]


def file_table(rows: list[Record]) -> Table:
    """Lists the ways through a file of real sentences."""
    made = []
    for row in rows:
        first, again = [*row.get("s", []), None, None][:2]
        same = None if row.get("same") is None else 100 * row["same"]
        cells = [number(first), number(again), number(same, ".1f", " %"), number(row.get("bleu"), ".2f")]
        made.append(Row(f"regard {row.get('precision')}, {row.get('way')}", cells))
    heads = ("way", "first, s", "again, s", "lines as the first way", "BLEU")
    return make_table("A file of real sentences", heads, made, [LEAST, LEAST, None, None])
