"""What each word of a translation looked at, as a strip of bars."""

from collections.abc import Sequence
from math import inf

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.figure import COLOURS, in_style
from regard.plot.matrix import PAD, name_columns, name_rows, place_map
from regard.plot.measure import widest
from regard.plot.sheet import GREY, MARGIN, NAME, Box, make_sheet, title_size, write, write_title
from regard.plot.words import check_words, readable

PAGE = 13.0  # what a side does not exceed as long as each word has its place
WIDEST, HIGHEST, SMALLEST = 0.3, 0.26, 0.15  # cells in inches; the smallest has room for a line of text
OTHERS = "#7fb3d5"  # bars that are not the highest of their row
STRIPE = "#f3f3f3"  # behind every second column, to follow it down


@in_style
def draw_looked_at(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    title: str = "What each word looked at",
) -> Figure:
    """Draws a row for each target word, with a bar over each source word, and names the word that it looked at most."""
    T, S = weights.shape
    check_words("target words", tgt, T, "rows")
    check_words("source words", src, S, "columns")
    full = float(weights.max(initial=0.0)) or 1.0
    below = f"a bar as high as its row: {full:.0%} of the weight; at the right what has most of it"
    wide, top = title_size(title, below)
    box, right = place_map(tgt, src, (_cell(S, WIDEST), _cell(T, HIGHEST)), top, page=inf)
    most = [_most(row, src) for row in weights]
    right = max(right, box.right + 2 * PAD + widest(most, NAME))
    figure, axes = make_sheet(max(wide, right + MARGIN), box.bottom + MARGIN)
    write_title(axes, title, below)
    name_rows(axes, tgt, box)
    name_columns(axes, src, box)
    _draw_bars(axes, weights / full, box)
    for i, text in enumerate(most):
        write(axes, box.right + 2 * PAD, box.top + (i + 0.5) * box.height / T, text, NAME, color=GREY)
    return figure


def _cell(n: int, largest: float) -> float:
    return min(largest, max(SMALLEST, PAGE / n))


def _most(row: Float[np.ndarray, " S"], src: Sequence[str]) -> str:
    """Names the word with the largest weight; nothing where no word may be looked at."""
    at = int(row.argmax())
    return f"{readable(src[at])} {row[at]:.0%}" if row[at] > 0 else ""


def _draw_bars(axes: Axes, heights: Float[np.ndarray, "T S"], box: Box) -> None:
    """Draws bars that stand on the lower edge of their row, the highest of each row darker."""
    T, S = heights.shape
    width, height = box.width / S, box.height / T
    for j in range(1, S, 2):
        axes.add_patch(Rectangle((box.left + j * width, box.top), width, box.height, color=STRIPE, linewidth=0))
    for i, row in enumerate(heights):
        floor = box.top + (i + 1) * height
        axes.plot([box.left, box.right], [floor, floor], color="#cccccc", linewidth=0.5)
        bars = [
            Rectangle((box.left + (j + 0.1) * width, floor), 0.8 * width, -0.9 * height * share)
            for j, share in enumerate(row.tolist())
        ]
        colours = [COLOURS[0] if share == row.max() else OTHERS for share in row.tolist()]
        axes.add_collection(PatchCollection(bars, facecolors=colours, linewidths=0), autolim=False)
