"""Numbers of several systems beside each other, the best of each column marked, whoever's it is."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rich.table import Table
from rich.text import Text

from regard.plot.terminal import QUIET


class Better(Enum):
    """Which end of a column is the better one."""

    LEAST = "least"
    MOST = "most"


LEAST, MOST = Better.LEAST, Better.MOST
NOTHING = "–"
OURS = ("regard", "kernel", "blocks")  # with which the names of our own systems begin


@dataclass(frozen=True)
class Number:
    """What stands in a cell, and what it is compared by; without a value it takes no part."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """One system; only those of the same group (of one precision, say) are compared."""

    name: str
    cells: Sequence[Number]
    group: str = ""


@dataclass(frozen=True)
class Contest:
    """One comparison: what was measured, by how much ours stands before or behind the best of the others."""

    what: str
    ours: Number
    theirs: Number
    peer: str
    ratio: float  # above 1 where ours is the better


def number(value: Any, form: str | None = None, unit: str = "") -> Number:
    """Gives a number that may be missing."""
    if value is None:
        return Number(NOTHING)
    return Number(_written(value, form) + unit, float(value))


def short(value: float | int) -> str:
    """Writes a number with three figures, or in whole where it has more."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _written(value: Any, form: str | None) -> str:
    return short(value) if form is None else f"{value:{form}}"


def spread(median: Any, low: Any, high: Any, form: str | None = None) -> Number:
    """Gives a median with its middle half, where both ends are known."""
    if median is None or low is None or high is None:
        return number(median, form)
    return Number("{} ({} … {})".format(*(_written(x, form) for x in (median, low, high))), float(median))


def with_share(shown: Number, share: float | int | None) -> Number:
    """Adds the share of the limit."""
    return shown if share is None else Number(f"{shown.text} · {share:.0%}".replace("%", " %"), shown.value)


def make_table(title: str, heads: Sequence[str], rows: Sequence[Row], better: Sequence[Better | None]) -> Table:
    """Makes a table with the best of each column and group of rows in bold; `better` leaves out the first column."""
    table = Table(title=title, **QUIET)
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left")
    best = [_best(rows, column, how) for column, how in enumerate(better)]
    for row in rows:
        shown = [Text(cell.text, style="bold" if row in best[at] else "") for at, cell in enumerate(row.cells)]
        table.add_row(row.name, *shown)
    return table


def _best(rows: Sequence[Row], column: int, how: Better | None) -> list[Row]:
    """Gives the rows that are the best of their groups; one that stands alone is no better than anybody."""
    found = []
    for group in dict.fromkeys(row.group for row in rows):
        values = {id(row): row.cells[column].value for row in rows if row.group == group}
        known = [value for value in values.values() if value is not None]
        if how is None or len(known) < 2:
            continue
        top = min(known) if how is LEAST else max(known)
        found += [row for row in rows if values.get(id(row)) == top]
    return found


def contests(what: str, rows: Sequence[Row], column: int, how: Better) -> list[Contest]:
    """Sets the best of ours against the best of the others, in each group that has both."""
    found = []
    for group in dict.fromkeys(row.group for row in rows):
        cells = [(row.name, row.cells[column]) for row in rows if row.group == group]
        known = sorted(((cell.value, name, cell) for name, cell in cells if cell.value), key=lambda it: it[0])
        known = known if how is LEAST else known[::-1]
        ours = next((each for each in known if is_ours(each[1])), None)
        theirs = next((each for each in known if not is_ours(each[1])), None)
        if ours is not None and theirs is not None:
            ratio = theirs[0] / ours[0] if how is LEAST else ours[0] / theirs[0]
            name = f"{what}, {group}" if group else what
            found.append(Contest(name, ours[2], theirs[2], theirs[1], ratio))
    return found


def is_ours(name: str) -> bool:
    """Tells our systems by their names."""
    return name.startswith(OURS)


def markdown(table: Table) -> str:
    """Gives a table as markdown, with what is bold in bold."""
    heads = [str(column.header) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = zip(*([_cell(cell) for cell in column.cells] for column in table.columns), strict=True)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _cell(cell: object) -> str:
    text = (cell.plain if isinstance(cell, Text) else str(cell)).replace("|", "\\|").replace("\n", " ")
    return f"**{text}**" if isinstance(cell, Text) and cell.style == "bold" else text
