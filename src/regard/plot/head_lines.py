"""Lines from each word to those that it looks at, a colour for each head."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from regard.plot.figure import COLOURS, in_style
from regard.plot.matrix import PAD, row_room
from regard.plot.measure import line_height, text_width
from regard.plot.sheet import GREY, MARGIN, NAME, Box, make_sheet, title_size, write, write_title
from regard.plot.words import check_words, readable, shorten

SPAN = 2.2  # inches between the two columns of words
PITCH = 0.2  # and between words
BETWEEN = 0.4  # and between panels
LANES = 0.07  # inches to either side of a word's middle over which heads are spread, so that none hides another
SWATCH = 0.2  # length of the line that shows a head's colour
FAINTEST = 0.02  # weights below it would be but a haze
THICKEST = 2.5  # points, at weight 1
BELOW = f"thicker and darker: more weight; none drawn below {FAINTEST:.0%}"


@dataclass(frozen=True)
class _Panel:
    """The place of everything in one panel."""

    queries: Sequence[str]
    keys: Sequence[str]
    sides: tuple[str, str]

    @property
    def rooms(self) -> tuple[float, float]:
        """Gives the widths of the two columns."""
        columns = zip((self.queries, self.keys), self.sides, strict=True)
        left, right = (max(row_room(words), text_width(side, NAME) + PAD) for words, side in columns)
        return left, right

    @property
    def width(self) -> float:
        """Gives the width of the panel."""
        return sum(self.rooms) + SPAN

    def span(self, left: float, top: float) -> Box:
        """Gives the place of the lines."""
        return Box(left + self.rooms[0], top, SPAN, PITCH * max(len(self.queries), len(self.keys)))


@in_style
def draw_head_lines(
    weights: Float[np.ndarray, "H Q K"],
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Sequence[str],
    title: str = "Who looks at whom",
    sides: tuple[str, str] = ("query", "key"),
) -> Figure:
    """Draws queries at the left, keys at the right, and between them lines as strong as the weights.

    Colours that anybody can tell apart are few: more heads than these are spread over several panels.
    """
    H, Q, K = weights.shape
    check_words("heads", heads, H, "matrices")
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    groups = np.array_split(np.arange(H), ceil(H / len(COLOURS)))
    panel = _Panel(queries, keys, sides)
    wide, top = title_size(title, BELOW)
    span = panel.span(0.0, top + line_height(NAME))
    names = [_flow([heads[int(h)] for h in group], panel.width) for group in groups]
    bottom = span.bottom + 0.1 + max(len(lines) for lines in names) * line_height(NAME) + MARGIN
    figure, axes = make_sheet(max(wide, 2 * MARGIN + len(groups) * (panel.width + BETWEEN) - BETWEEN), bottom)
    write_title(axes, title, BELOW)
    for at, (group, lines) in enumerate(zip(groups, names, strict=True)):
        left = MARGIN + at * (panel.width + BETWEEN)
        place = panel.span(left, span.top)
        _write_words(axes, panel, place)
        for h, colour, lane in zip(group, COLOURS, np.linspace(-LANES, LANES, len(group) + 2)[1:-1], strict=False):
            _draw_lines(axes, weights[h], replace(place, top=place.top + lane), colour)
        _write_heads(axes, lines, left, span.bottom + 0.1)
    return figure


def _heights(n: int, box: Box) -> Float[np.ndarray, " n"]:
    """Spreads words evenly from top to bottom."""
    return box.top + (np.arange(n) + 0.5) * box.height / n


def _write_words(axes: Axes, panel: _Panel, box: Box) -> None:
    columns = ((panel.queries, box.left - PAD, "right"), (panel.keys, box.right + PAD, "left"))
    for side, (words, x, ha) in zip(panel.sides, columns, strict=True):
        write(axes, x, box.top - line_height(NAME) / 2, side, NAME, ha=ha, color=GREY)
        for word, y in zip(words, _heights(len(words), box).tolist(), strict=True):
            write(axes, x, y, readable(word), NAME, ha=ha)


def _draw_lines(axes: Axes, weights: Float[np.ndarray, "Q K"], box: Box, colour: str) -> None:
    """Draws one head, the strongest lines last."""
    left, right = (_heights(n, box) for n in weights.shape)
    order = [(i, j) for i, j in zip(*np.nonzero(weights >= FAINTEST), strict=True)]
    order.sort(key=lambda at: weights[at])
    strengths = [min(float(weights[at]), 1.0) for at in order]
    lines = LineCollection(
        [np.array([(box.left, left[i]), (box.right, right[j])]) for i, j in order],
        colors=[to_rgba(colour, max(strength, 0.08)) for strength in strengths],
        linewidths=[max(THICKEST * strength, 0.4) for strength in strengths],
        capstyle="round",
    )
    axes.add_collection(lines, autolim=False)


def _flow(names: Sequence[str], width: float) -> list[list[str]]:
    """Breaks the names of heads into lines."""
    lines: list[list[str]] = [[]]
    for name in map(shorten, names):
        if lines[-1] and sum(map(_entry, [*lines[-1], name])) > width:
            lines.append([])
        lines[-1].append(name)
    return lines


def _entry(name: str) -> float:
    return SWATCH + 2 * PAD + text_width(name, NAME) + 0.1


def _write_heads(axes: Axes, lines: Sequence[Sequence[str]], left: float, top: float) -> None:
    """Writes the names of heads, each behind a line in its colour."""
    colours = iter(COLOURS)
    for i, line in enumerate(lines):
        x, y = left, top + (i + 0.5) * line_height(NAME)
        for name in line:
            axes.plot([x, x + SWATCH], [y, y], color=next(colours), linewidth=THICKEST)
            write(axes, x + SWATCH + 2 * PAD, y, name, NAME)
            x += _entry(name)
