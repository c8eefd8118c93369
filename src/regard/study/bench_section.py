"""One suite's results on the page: tables, panels of a figure, and comparisons, all made from its file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.table import Table

from regard.study.bench_table import Contest
from regard.study.timing import exponent

Record = dict[str, Any]
Real = float | int  # as JSON has them


@dataclass(frozen=True)
class Bar:
    """One system's median, and the middle half of its repeats where it is known."""

    name: str
    value: Real
    low: Real | None = None
    high: Real | None = None


@dataclass(frozen=True)
class Bars:
    """Systems beside each other, and the machine's limit."""

    title: str
    bars: Sequence[Bar]
    limit: Real | None = None
    log: bool = False


@dataclass(frozen=True)
class Line:
    """One system over sizes."""

    name: str
    sizes: Sequence[Real]
    values: Sequence[Real]
    exponent: float | None = None


@dataclass(frozen=True)
class Lines:
    """Systems over a size, both on logarithmic axes."""

    title: str
    axis: str
    letter: str  # of the power in the legend
    lines: Sequence[Line]
    limit: Line | None = None


@dataclass(frozen=True)
class Section:
    """What the page says about one file."""

    tables: Sequence[Table] = ()
    panels: Sequence[Bars | Lines] = ()
    columns: int = 2  # of panels
    picture: str = ""  # what it shows, for who cannot see it
    notes: Sequence[str] = ()
    contests: Sequence[Contest] = field(default_factory=list)


def line(name: str, sizes: Sequence[Any], values: Sequence[Any], least: float = 0.0, power: Any = None) -> Line:
    """Makes a line of what is known, with the power that the file names or else with one that is fitted here."""
    points = [(size, x) for size, x in zip(sizes, values, strict=False) if x is not None and x > least]
    fitted = exponent(sizes, values, least) if power is None else power
    return Line(name, [size for size, _ in points], [x for _, x in points], fitted)


def percent(share: Real | None) -> str:
    """Writes a share."""
    return "–" if share is None else f"{100 * share:.0f} %"


def count(n: int, thing: str) -> str:
    """Writes a number of things."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"
