"""Viewers of attention beside each other, on the page of measurements."""

from collections.abc import Sequence

from rich.table import Table

from regard.study.bench_section import Bar, Bars, Line, Lines, Record, Section, line
from regard.study.bench_table import LEAST, Contest, Number, Row, contests, make_table, number

LOOKS = {"bytes": ("MB", 1e-6), "make_seconds": ("made in s", 1.0), "draw_seconds": ("first picture after s", 1.0)}


def view_section(record: Record) -> Section:
    """Shows how large a file is, how long it is made, and how soon a browser draws it."""
    rows = record.get("rows", [])
    tables: list[Table] = []
    found: list[Contest] = []
    sizes = list(dict.fromkeys(row["tokens"] for row in rows))
    for n in sizes:
        made = [Row(row["viewer"], _cells(row)) for row in rows if row["tokens"] == n]
        heads = ("viewer", *(head for head, _ in LOOKS.values()))
        tables.append(make_table(f"{n} tokens", heads, made, [LEAST] * 3))
        for at, (head, _) in enumerate(LOOKS.values()):
            found += contests(f"view of {n} tokens, {head}", made, at, LEAST)
    panels: list[Bars | Lines] = [_panel(rows, key) for key in LOOKS]
    if len(sizes) == 1:
        panels = [_bars(rows, key) for key in LOOKS]
    missing = [
        f"{row['viewer']} drew nothing at {row['tokens']} tokens." for row in rows if not row.get("draw_seconds")
    ]
    return Section(tables, panels, 3, "Size, making and first picture of each viewer over the tokens", missing, found)


def _cells(row: Record) -> Sequence[Number]:
    return [number(None if row.get(key) is None else row[key] * by) for key, (_, by) in LOOKS.items()]


def _panel(rows: list[Record], key: str) -> Lines:
    head, by = LOOKS[key]
    lines: dict[str, Line] = {}
    for viewer in dict.fromkeys(row["viewer"] for row in rows):
        points = [row for row in rows if row["viewer"] == viewer and row.get(key)]
        values = [row[key] * by for row in points]
        same = next((name for name, known in lines.items() if known.values == values), None)
        name = viewer if same is None else viewer.partition(",")[0]  # several pictures from one file
        lines.pop(same or "", None)
        lines[name] = line(name, [row["tokens"] for row in points], values)
    return Lines(head, "tokens", "n", list(lines.values()))


def _bars(rows: list[Record], key: str) -> Bars:
    head, by = LOOKS[key]
    return Bars(head, [Bar(row["viewer"], row[key] * by) for row in rows if row.get(key)], log=True)
