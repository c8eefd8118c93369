"""The report on one result file: its tables, the panels of its figure, and its comparisons with other systems."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks.report.tables import Comparison
from regard.study.timing import exponent

Record = dict[str, Any]  # a result file or a part of it; older files may lack some keys


@dataclass(frozen=True)
class Bar:
    """The median of one system, with the quartiles of its repeats where they are known."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class BarPanel:
    """Several systems side by side, with the machine's limit."""

    title: str
    bars: Sequence[Bar]
    limit: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Line:
    """One system over sizes."""

    name: str
    sizes: Sequence[float]
    values: Sequence[float]
    exponent: float | None = None


@dataclass(frozen=True)
class LinePanel:
    """Several systems over sizes, both axes logarithmic."""

    title: str
    axis: str
    symbol: str  # of the size, for the power law in the legend
    lines: Sequence[Line]
    limit: Line | None = None


@dataclass(frozen=True)
class Section:
    """What the page shows of one result file."""

    tables: Sequence[Table] = ()
    panels: Sequence[BarPanel | LinePanel] = ()
    n_columns: int = 2  # of panels
    caption: str = ""  # of the figure, also its alternative text
    notes: Sequence[str] = ()
    comparisons: Sequence[Comparison] = ()


def make_line(name: str, sizes: Sequence[Any], values: Sequence[Any], least: float = 0.0, power: Any = None) -> Line:
    """Return a line through the known values above `least`; its exponent is `power`, or fitted if that is None."""
    points = [(size, value) for size, value in zip(sizes, values, strict=False) if value is not None and value > least]
    fitted = exponent(sizes, values, least) if power is None else power
    return Line(name, [size for size, _ in points], [value for _, value in points], fitted)
