"""Which words of two sentences belong together."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from regard.plot.figure import COLOURS, in_style
from regard.plot.matrix import draw_matrix, name_columns, name_rows, place_map
from regard.plot.shade import KEY_HEIGHT, draw_key, weight_shade
from regard.plot.sheet import MARGIN, NAME, Box, make_sheet, title_size, write_title
from regard.plot.words import check_words

Link = tuple[int, int]  # a source word and a target word, counted from 0 as in Pharaoh's `i-j`

CELL = 0.3, 0.3
BELOW = "columns: source words; rows: target words"
MARKS_HEIGHT = 0.35  # inches for what the marks mean
SURE: Any = {"edgecolor": COLOURS[1], "linewidth": 1.6, "linestyle": "-"}
POSSIBLE: Any = {"edgecolor": COLOURS[1], "linewidth": 1.2, "linestyle": (0, (2, 1.2))}
CHOSEN: Any = {"marker": "o", "linestyle": "", "color": "black", "markeredgecolor": "white", "markeredgewidth": 0.8}


@in_style
def draw_alignment(
    weights: Float[np.ndarray, "T S"],
    src: Sequence[str],
    tgt: Sequence[str],
    links: Iterable[Link],
    sure: Iterable[Link] = (),
    possible: Iterable[Link] = (),
    title: str = "Which words belong together",
) -> Figure:
    """Draws weights as shades, chosen links as dots, gold ones as frames: whole where sure, broken where possible."""
    T, S = weights.shape
    check_words("target words", tgt, T, "rows")
    check_words("source words", src, S, "columns")
    chosen, sure, possible = ([_checked(link, S, T) for link in each] for each in (links, sure, possible))
    wide, top = title_size(title, BELOW)
    box, right = place_map(tgt, src, CELL, top)
    bottom = box.bottom + 0.1 + MARKS_HEIGHT
    figure, axes = make_sheet(max(wide, right + MARGIN, 3.4), bottom + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    shade = weight_shade(weights)
    draw_matrix(axes, weights, box, shade)
    name_rows(axes, tgt, box)
    name_columns(axes, src, box)
    _frame(axes, [link for link in possible if link not in sure], box, (S, T), POSSIBLE)
    _frame(axes, sure, box, (S, T), SURE)
    _dot(axes, chosen, box, (S, T))
    _explain(axes, box.bottom + 0.1, bool(sure), bool(possible))
    draw_key(figure, shade, Box(MARGIN, bottom, 1.5, KEY_HEIGHT), "weight")
    return figure


def _checked(link: Link, S: int, T: int) -> Link:
    i, j = link
    if not (0 <= i < S and 0 <= j < T):
        raise ValueError(f"a link must join one of {S} source words to one of {T} target words, got {i}-{j}")
    return link


def _frame(axes: Axes, links: Sequence[Link], box: Box, size: tuple[int, int], look: dict[str, Any]) -> None:
    width, height = box.width / size[0], box.height / size[1]
    for i, j in links:
        corner = box.left + (i + 0.1) * width, box.top + (j + 0.1) * height
        axes.add_patch(Rectangle(corner, 0.8 * width, 0.8 * height, fill=False, **look))


def _dot(axes: Axes, links: Sequence[Link], box: Box, size: tuple[int, int]) -> None:
    width, height = box.width / size[0], box.height / size[1]
    x, y = [box.left + (i + 0.5) * width for i, _ in links], [box.top + (j + 0.5) * height for _, j in links]
    axes.plot(x, y, markersize=24 * min(width, height), label="chosen", **CHOSEN)


def _explain(axes: Axes, top: float, sure: bool, possible: bool) -> None:
    """Says below the matrix what the marks mean."""
    marks: list[Any] = [Line2D([], [], label="chosen", **CHOSEN)]
    frames = [("gold, sure", SURE)] * sure + [("gold, possible", POSSIBLE)] * possible
    marks += [Rectangle((0, 0), 1, 1, fill=False, label=name, **look) for name, look in frames]
    axes.legend(
        handles=marks,
        ncols=3,
        loc="upper left",
        bbox_to_anchor=(MARGIN, top),
        bbox_transform=axes.transData,
        borderpad=0,
        borderaxespad=0,
        handlelength=1.2,
        fontsize=NAME,
    )
