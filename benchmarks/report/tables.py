"""Tables that set systems side by side, with the best of each column in bold, whoever's it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.table import Table
from rich.text import Text

from regard.terminal import QUIET


class Better(Enum):
    """Which end of a column is the better one."""

    LOWER = "lower"
    HIGHER = "higher"


LOWER, HIGHER = Better.LOWER, Better.HIGHER
MISSING = "–"
OURS = ("regard", "kernel", "blocks")  # prefixes of our own systems' names


@dataclass(frozen=True)
class Cell:
    """The text of a cell and the number it is compared by; without a number it is not compared."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """One system; only rows of the same group (of one precision, say) are compared."""

    name: str
    cells: Sequence[Cell]
    group: str = ""


@dataclass(frozen=True)
class Comparison:
    """The best of our systems against the best of the others on one measurement."""

    what: str
    ours: Cell
    theirs: Cell
    peer: str
    ratio: float  # above 1 where ours is the better


def number_cell(value: Any, form: str | None = None, unit: str = "") -> Cell:
    """Return the cell of a number, which may be None."""
    if value is None:
        return Cell(MISSING)
    return Cell(_format(value, form) + unit, float(value))


def range_cell(median: Any, low: Any, high: Any, form: str | None = None) -> Cell:
    """Return the cell of a median, with its quartiles if both are known."""
    if median is None or low is None or high is None:
        return number_cell(median, form)
    return Cell("{} ({} … {})".format(*(_format(x, form) for x in (median, low, high))), float(median))


def timing_cell(timing: dict[str, float]) -> Cell:
    """Return the cell of a timing in milliseconds; result files have seconds."""
    median, low, high = (to_ms(timing.get(key)) for key in ("median", "low", "high"))
    return range_cell(median, low, high)


def with_share(cell: Cell, share: float | None) -> Cell:
    """Append the share of the limit to a cell, if it is known."""
    return cell if share is None else Cell(f"{cell.text} · {share:.0%}".replace("%", " %"), cell.value)


def format_number(value: float) -> str:
    """Format a number to three significant figures, or as an integer from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _format(value: Any, form: str | None) -> str:
    return format_number(value) if form is None else f"{value:{form}}"


def to_ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.0f} %"


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def make_table(title: str, headers: Sequence[str], rows: Sequence[Row], better: Sequence[Better | None]) -> Table:
    """Return a table with the best of each column and group in bold; `better` has no entry for the first column."""
    table = Table(title=title, **QUIET)
    for index, header in enumerate(headers):
        table.add_column(header, justify="right" if index else "left")
    best = [_best_rows(rows, column, direction) for column, direction in enumerate(better)]
    for row in rows:
        cells = [Text(cell.text, style="bold" if row in best[at] else "") for at, cell in enumerate(row.cells)]
        table.add_row(row.name, *cells)
    return table


def _best_rows(rows: Sequence[Row], column: int, better: Better | None) -> list[Row]:
    """Return the best row of each group that has at least two values."""
    best = []
    for group in dict.fromkeys(row.group for row in rows):
        values = {id(row): row.cells[column].value for row in rows if row.group == group}
        known = [value for value in values.values() if value is not None]
        if better is None or len(known) < 2:
            continue
        top = min(known) if better is LOWER else max(known)
        best += [row for row in rows if values.get(id(row)) == top]
    return best


def compare(what: str, rows: Sequence[Row], column: int, better: Better) -> list[Comparison]:
    """Compare the best of ours with the best of the others, in each group that has both."""
    comparisons = []
    for group in dict.fromkeys(row.group for row in rows):
        cells = [(row.name, row.cells[column]) for row in rows if row.group == group]
        ranked = sorted(((cell.value, name, cell) for name, cell in cells if cell.value), key=lambda entry: entry[0])
        ranked = ranked if better is LOWER else ranked[::-1]
        ours = next((entry for entry in ranked if is_ours(entry[1])), None)
        theirs = next((entry for entry in ranked if not is_ours(entry[1])), None)
        if ours is not None and theirs is not None:
            ratio = theirs[0] / ours[0] if better is LOWER else ours[0] / theirs[0]
            name = f"{what}, {group}" if group else what
            comparisons.append(Comparison(name, ours[2], theirs[2], theirs[1], ratio))
    return comparisons


def is_ours(name: str) -> bool:
    return name.startswith(OURS)


def markdown(table: Table) -> str:
    """Return a table as Markdown, bold cells in bold."""
    headers = [str(column.header) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = zip(*([_markdown_cell(cell) for cell in column.cells] for column in table.columns), strict=True)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, rules, *rows))


def _markdown_cell(cell: object) -> str:
    text = (cell.plain if isinstance(cell, Text) else str(cell)).replace("|", "\\|").replace("\n", " ")
    return f"**{text}**" if isinstance(cell, Text) and cell.style == "bold" else text
