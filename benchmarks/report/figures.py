"""Figures of measurements: bars with the machine's limit, and lines over sizes with fitted exponents."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks.report import Bar, BarPanel, Line, LinePanel, Section
from benchmarks.report.tables import format_number, is_ours
from regard.plot.style import COLOURS, in_style, new_figure

# inches: a figure, one with a single column, the height of a bar and of a panel of lines
WIDTH, NARROW, BAR_HEIGHT, LINES_HEIGHT = 11.0, 7.0, 0.21, 3.6
MAX_INSIDE = 6  # lines whose legend still fits inside the axes
OURS, OTHERS, LIMIT = COLOURS[0], "#bbbbbb", COLOURS[1]
MARKERS = "os^vDPX<>"
BACKGROUND = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}
# The number at the end of a bar stays readable where the limit's line crosses it.
LABEL: Any = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": 7, "bbox": BACKGROUND}


@in_style
def draw_section(section: Section) -> Figure:
    """Draw all panels of a section, in rows."""
    columns = min(section.n_columns, len(section.panels))
    rows = [section.panels[start : start + columns] for start in range(0, len(section.panels), columns)]
    heights = [max(_height(panel) for panel in row) for row in rows]
    figure = new_figure(figsize=(WIDTH if columns > 1 else NARROW, sum(heights)))
    grid = figure.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for axes_of_row, row in zip(grid, rows, strict=True):
        for column, axes in enumerate(axes_of_row):
            if column < len(row):
                _draw_panel(axes, row[column], row[column - 1] if column else None)
            else:
                axes.set_axis_off()
    return figure


def _height(panel: BarPanel | LinePanel) -> float:
    return BAR_HEIGHT * len(panel.bars) + 0.8 if isinstance(panel, BarPanel) else LINES_HEIGHT


def _draw_panel(axes: Axes, panel: BarPanel | LinePanel, left: BarPanel | LinePanel | None) -> None:
    if isinstance(panel, LinePanel):
        _draw_lines(axes, panel)
    else:
        _draw_bars(axes, panel)
        if isinstance(left, BarPanel) and [bar.name for bar in left.bars] == [bar.name for bar in panel.bars]:
            axes.set_yticklabels([])  # the panel to the left names them


def _draw_bars(axes: Axes, panel: BarPanel) -> None:
    for y, bar in enumerate(panel.bars):
        axes.barh(y, bar.value, height=0.7, color=OURS if is_ours(bar.name) else OTHERS)
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [y, y], color="black", linewidth=1)
        axes.annotate(format_number(bar.value), (_end(bar), y), **LABEL)
    if panel.limit is not None:
        axes.axvline(panel.limit, color=LIMIT, linestyle="--", linewidth=1.2)
    axes.set_xlim(*_x_limits(panel))
    if panel.log:
        axes.set_xscale("log")
        _set_log_ticks(axes.xaxis, *_x_limits(panel))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    axes.set_yticks(range(len(panel.bars)), [bar.name for bar in panel.bars])
    axes.invert_yaxis()
    axes.set_title(panel.title, fontsize="small")
    axes.tick_params(labelsize="x-small")


def _end(bar: Bar) -> float:
    return max(bar.value, bar.high or 0.0)


def _x_limits(panel: BarPanel) -> tuple[float, float]:
    """Leave room for the numbers at the ends of the bars."""
    values = [x for bar in panel.bars for x in (bar.value, bar.low or bar.value)]
    values += [] if panel.limit is None else [panel.limit]
    most = max([_end(bar) for bar in panel.bars] + values)
    if not panel.log:
        return 0.0, 1.22 * most
    least = min(values) / 1.6
    return least, most * (most / least) ** 0.3


def _draw_lines(axes: Axes, panel: LinePanel) -> None:
    for index, line in enumerate(panel.lines):
        if line.sizes:
            style = MARKERS[index % len(MARKERS)] + ("-" if index < len(COLOURS) else ":")
            (drawn,) = axes.plot(line.sizes, line.values, style, color=COLOURS[index % len(COLOURS)])
            drawn.set(markersize=4, linewidth=1.2, label=_label(line, panel))
    if panel.limit is not None and panel.limit.sizes:
        name = panel.limit.name
        axes.plot(panel.limit.sizes, panel.limit.values, "--", color="black", linewidth=1, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    sizes = sorted({size for line in panel.lines for size in line.sizes})
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    _set_log_ticks(axes.yaxis, *axes.get_ylim())
    axes.set(title=panel.title, xlabel=panel.axis)
    outside = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(panel.lines) > MAX_INSIDE else {}
    axes.legend(fontsize="x-small", **outside)


def _set_log_ticks(axis: Axis, low: float, high: float) -> None:
    """Put ticks at 1, 2 and 5 of each power of ten, or at 1 alone over a wide range, and write them in full."""
    axis.set_major_locator(LogLocator(10, (1, 2, 5) if high / low < 100 else (1,)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))


def _label(line: Line, panel: LinePanel) -> str:
    return line.name if line.exponent is None else f"{line.name}: {panel.symbol}^{line.exponent:.2f}"
