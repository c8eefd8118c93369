"""Attention layers beside the peers' on the page of measurements."""

from typing import Any

from rich.table import Table

from regard.study.bench_section import Line, Lines, Real, Record, Section, line
from regard.study.bench_table import LEAST, Contest, Number, Row, contests, make_table, number, spread, with_share


def attention_section(record: Record) -> Section:
    """Shows layers by length, and additive attention in blocks beside its formula."""
    tables: list[Table] = []
    found: list[Contest] = []
    panels = []
    layers = record.get("layers", [])
    for kind in dict.fromkeys(row["kind"] for row in layers):
        of_kind = [row for row in layers if row["kind"] == kind]
        lengths = list(dict.fromkeys(row["length"] for row in of_kind))
        rows = _rows(of_kind, lengths)
        limits = [_limit(of_kind, length) for length in lengths]
        heads = ("version", *(f"{length} tokens" for length in lengths))
        title = f"Layers, {kind}, forward + backward: ms · share of the limit"
        last = Row("the limit", [Number(number(limit).text) for limit in limits])
        tables.append(make_table(title, heads, [*rows, last], [LEAST] * len(lengths)))
        for at, length in enumerate(lengths):
            found += contests(f"layer, {kind}, texts of {length} tokens, ms", rows, at, LEAST)
        panels.append(_panel(kind, of_kind, lengths, limits))
    if record.get("additive"):
        tables.append(additive_table(record["additive"]))
    picture = "Milliseconds of a layer over the length of its texts, the number of tokens staying the same"
    return Section(tables, panels, picture=picture, contests=found)


def _rows(layers: list[Record], lengths: list[int]) -> list[Row]:
    rows = []
    for version in dict.fromkeys(row["version"] for row in layers):
        at = {row["length"]: row for row in layers if row["version"] == version}
        rows.append(Row(version, [_cell(at.get(length, {})) for length in lengths]))
    return rows


def _cell(row: Record) -> Number:
    return with_share(spread(row.get("ms"), row.get("low_ms"), row.get("high_ms")), row.get("of_limit"))


def _limit(layers: list[Record], length: int) -> Real | None:
    """Gives the milliseconds at which the share would be all: every row knows both."""
    found = (row for row in layers if row["length"] == length and row.get("of_limit"))
    return next((row["ms"] * row["of_limit"] for row in found), None)


def _panel(kind: str, layers: list[Record], lengths: list[int], limits: list[Real | None]) -> Lines:
    lines = []
    for version in dict.fromkeys(row["version"] for row in layers):
        of_version = [row for row in layers if row["version"] == version]
        lines.append(line(version, [row["length"] for row in of_version], [row.get("ms") for row in of_version]))
    limit: Line | None = line("the limit", lengths, limits) if any(limits) else None
    return Lines(f"Layer, {kind}: ms", "tokens of a text", "n", lines, limit)


def additive_table(versions: dict[str, Any]) -> Table:
    """Lists time and memory of ways to the same additive attention."""
    rows = [
        Row(name, [spread(row.get("ms"), row.get("low_ms"), row.get("high_ms")), number(row.get("extra_mib"), ",.0f")])
        for name, row in versions.items()
    ]
    title = "Additive attention, forward + backward, both ours"
    return make_table(title, ("version", "ms", "extra MiB"), rows, [LEAST, LEAST])
