"""Measurements as figures: bars with the machine's limit, and lines over sizes with fitted powers."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from regard.plot.style import COLOURS, Drawing, in_style
from regard.study.bench_section import Bar, Bars, Line, Lines, Section
from regard.study.bench_table import is_ours, short

WIDTH, ALONE, BAR, LINES = 11.0, 7.0, 0.21, 3.6  # inches: a figure, one with a single panel, a bar, lines' height
CROWD = 6  # lines that leave room for their legend among them
OURS, OTHERS, LIMIT = COLOURS[0], "#bbbbbb", COLOURS[1]
MARKS = "os^vDPX<>"
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
# How a bar's number stands at its end, readable where the limit's line passes.
BESIDE: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7, "bbox": PAPER}


@in_style
def draw_section(section: Section) -> Figure:
    """Draws all panels of a section in rows."""
    columns = min(section.columns, len(section.panels))
    rows = [section.panels[at : at + columns] for at in range(0, len(section.panels), columns)]
    heights = [max(_height(panel) for panel in row) for row in rows]
    figure = Drawing(figsize=(WIDTH if columns > 1 else ALONE, sum(heights)))
    places = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes_of_row, row in zip(places, rows, strict=True):
        for at, axes in enumerate(axes_of_row):
            if at < len(row):
                _draw(axes, row[at], row[at - 1] if at else None)
            else:
                axes.set_axis_off()
    return figure


def _height(panel: Bars | Lines) -> float:
    return BAR * len(panel.bars) + 0.8 if isinstance(panel, Bars) else LINES


def _draw(axes: Axes, panel: Bars | Lines, left: Bars | Lines | None) -> None:
    if isinstance(panel, Lines):
        _draw_lines(axes, panel)
    else:
        _draw_bars(axes, panel)
        if isinstance(left, Bars) and [bar.name for bar in left.bars] == [bar.name for bar in panel.bars]:
            axes.set_yticklabels([])  # the panel beside it names them


def _draw_bars(axes: Axes, panel: Bars) -> None:
    for place, bar in enumerate(panel.bars):
        axes.barh(place, bar.value, height=0.7, color=OURS if is_ours(bar.name) else OTHERS)
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [place, place], color="black", linewidth=1)
        axes.annotate(short(bar.value), (_end(bar), place), **BESIDE)
    if panel.limit is not None:
        axes.axvline(panel.limit, color=LIMIT, linestyle="--", linewidth=1.2)
    axes.set_xlim(*_ends(panel))
    if panel.log:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis, *_ends(panel))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axes.set_yticks(range(len(panel.bars)), [bar.name for bar in panel.bars])
    axes.invert_yaxis()
    axes.set_title(panel.title, fontsize="small")
    axes.tick_params(labelsize="x-small")


def _end(bar: Bar) -> float:
    return max(bar.value, bar.high or 0.0)


def _ends(panel: Bars) -> tuple[float, float]:
    """Leaves room for the numbers at the ends of bars, on a logarithmic axis in its own measure."""
    values = [x for bar in panel.bars for x in (bar.value, bar.low or bar.value)]
    values += [] if panel.limit is None else [panel.limit]
    most = max([_end(bar) for bar in panel.bars] + values)
    if not panel.log:
        return 0.0, 1.22 * most
    least = min(values) / 1.6
    return least, most * (most / least) ** 0.3


def _draw_lines(axes: Axes, panel: Lines) -> None:
    for place, each in enumerate(panel.lines):
        if each.sizes:
            form = MARKS[place % len(MARKS)] + ("-" if place < len(COLOURS) else ":")
            (drawn,) = axes.plot(each.sizes, each.values, form, color=COLOURS[place % len(COLOURS)])
            drawn.set(markersize=4, linewidth=1.2, label=_label(each, panel))
    if panel.limit is not None and panel.limit.sizes:
        name = panel.limit.name
        axes.plot(panel.limit.sizes, panel.limit.values, "--", color="black", linewidth=1, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({size for each in panel.lines for size in each.sizes})
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    _plain_ticks(axes.yaxis, *axes.get_ylim())
    axes.set(title=panel.title, xlabel=panel.axis)
    beside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(panel.lines) > CROWD else {}
    axes.legend(fontsize="x-small", **beside)


def _plain_ticks(axis: Axis, low: float, high: float) -> None:
    """Names 1, 2 and 5 of each power of ten where there is room for them, and writes them out."""
    axis.set_major_locator(LogLocator(10, (1, 2, 5) if high / low < 100 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def _label(each: Line, panel: Lines) -> str:
    return each.name if each.exponent is None else f"{each.name}: {panel.letter}^{each.exponent:.2f}"
