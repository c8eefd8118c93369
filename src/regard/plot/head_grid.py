"""All heads of a model as small maps, layer by layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.figure import in_style
from regard.plot.matrix import dots, draw_matrix
from regard.plot.measure import line_height, text_width
from regard.plot.shade import KEY_HEIGHT, Shade, draw_key, weight_shade
from regard.plot.sheet import (
    GREY,
    MARGIN,
    NAME,
    SMALL,
    TITLE,
    Box,
    make_sheet,
    title_size,
    write,
    write_strong,
    write_title,
)
from regard.plot.tiles import Tiles
from regard.plot.words import check_words

GAP = 0.08  # inches between maps
BETWEEN = 0.4  # and between kinds
PAGE = 15.0  # width that all kinds together should not exceed, unless maps then become too small
SMALLEST, LARGEST = 0.45, 2.4  # sides of a map
CELL = 0.3  # largest side of a cell
BELOW = "in each map: rows look (queries), columns are looked at (keys)"


@dataclass(frozen=True, eq=False)
class Heads:
    """The weights of all layers and heads of one kind of attention, over the words of one input."""

    kind: str
    weights: Float[np.ndarray, "L H Q K"]
    queries: Sequence[str]
    keys: Sequence[str]


@in_style
def draw_head_grid(kinds: Sequence[Heads], title: str = "What each head looks at") -> Figure:
    """Draws each kind as a block of maps, all of them in one scale."""
    if not kinds:
        raise ValueError("a grid of heads needs one kind of attention or more, got 0")
    blocks = [_Block(each, PAGE / len(kinds)) for each in kinds]
    wide, top = title_size(title, BELOW)
    lefts = MARGIN + np.cumsum([0.0, *(block.width + BETWEEN for block in blocks)])
    bottom = top + max(block.height for block in blocks) + 0.15
    figure, axes = make_sheet(max(wide, lefts[-1] - BETWEEN + MARGIN), bottom + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    shade = weight_shade(*(each.weights for each in kinds), root=True)
    for left, block in zip(lefts, blocks, strict=False):
        block.draw(axes, float(left), top, shade)
    draw_key(figure, shade, Box(MARGIN, bottom, 1.5, KEY_HEIGHT), "weight (shaded by its square root)")
    return figure


class _Block:
    """One kind's maps, their names, and the room that all of it takes."""

    def __init__(self, heads: Heads, page: float):
        L, H, Q, K = heads.weights.shape
        check_words("queries", heads.queries, Q, "rows")
        check_words("keys", heads.keys, K, "columns")
        self.heads = heads
        self.layer = text_width(f"layer {L - 1}", SMALL) + 0.1  # width of the layers' names
        side = float(np.clip((page - 1.0) / H - GAP, SMALLEST, min(LARGEST, max(2 * SMALLEST, CELL * K))))
        self.tiles = Tiles(heads.queries, heads.keys, L, H, side, GAP, GAP)
        self.size = f"{Q} queries × {K} keys" + dots(self.tiles.pool)
        names = max(text_width(heads.kind, NAME), text_width(self.size, NAME))
        self.width = max(self.layer + self.tiles.width, names)
        self.top = line_height(TITLE) + line_height(NAME) + line_height(SMALL)
        self.height = self.top + self.tiles.height

    def draw(self, axes: Axes, left: float, top: float, shade: Shade) -> None:
        """Draws it with the upper left corner at a point."""
        write_strong(axes, left, top + line_height(TITLE) / 2, self.heads.kind)
        write(axes, left, top + line_height(TITLE) + line_height(NAME) / 2, self.size, NAME, color=GREY)
        y = top + self.top
        for layer, head in np.ndindex(*self.heads.weights.shape[:2]):
            box = self.tiles.box(layer, head, left + self.layer, y)
            draw_matrix(axes, self.heads.weights[layer, head], box, shade)
            self.tiles.name(axes, layer, head, box)
            if layer == 0:
                write(axes, box.left + box.width / 2, y - line_height(SMALL) / 2, f"head {head}", SMALL, ha="center")
            if head == 0:
                write(axes, left, box.top + box.height / 2, f"layer {layer}", SMALL)
