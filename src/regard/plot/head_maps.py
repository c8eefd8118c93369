"""All heads, one head, terms."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.canvas import (
    GREY,
    MARGIN,
    NAME,
    SMALL,
    TITLE,
    Box,
    check_words,
    fit_text,
    line_height,
    make_sheet,
    text_width,
    title_size,
    widest,
    write,
    write_strong,
    write_title,
)
from regard.plot.heatmap import (
    KEY_HEIGHT,
    PAD,
    ColourScale,
    column_room,
    dots,
    draw_key,
    draw_matrix,
    key_room,
    name_columns,
    name_rows,
    place_map,
    pool_step,
    row_room,
    score_scale,
    stride,
    weight_scale,
    write_cell_numbers,
)
from regard.plot.style import COLOURS, in_style
from regard.shapes import Float

WORDS = 6.5  # size of the words beside small maps, in points
GAP = 0.08  # inches between maps
BETWEEN = 0.4  # and between kinds
PAGE = 15.0  # width that all kinds together should not exceed, unless maps then become too small
SMALLEST, LARGEST = 0.45, 2.4  # sides of a map
CELL = 0.3  # largest side of a cell
BELOW = "in each map: queries in rows, keys in columns"
KEY = "weight (shaded by its square root)"


@dataclass(frozen=True)
class Tiles:
    """Where each map has its place; words have one only where each row, or each column, is high enough for its own."""

    queries: Sequence[str]
    keys: Sequence[str]
    rows: int
    columns: int
    side: float  # width of a map in inches
    across: float  # inches between maps
    down: float

    @property
    def map_height(self) -> float:
        """Return the height of a map, whose cells are square unless it would become a ribbon."""
        return self.side * float(np.clip(len(self.queries) / len(self.keys), 0.5, 2.0))

    @cached_property
    def left(self) -> float:
        """Return the width of the words at the left."""
        return row_room(self.queries, WORDS) if self._rows_named else 0.0

    @cached_property
    def up(self) -> float:
        """Return the height of the words above."""
        return column_room(self.keys, self.side, WORDS)[0] if self._columns_named else 0.0

    @property
    def width(self) -> float:
        """Return the width of everything, words included."""
        out = column_room(self.keys, self.side, WORDS)[1] if self._columns_named else 0.0
        return self.left + self.columns * (self.side + self.across) - self.across + out

    @property
    def height(self) -> float:
        """Return the height of everything, words included."""
        return self.up + self.rows * (self.map_height + self.down) - self.down

    @property
    def pool(self) -> int:
        """Return the side of the squares of cells that share a dot."""
        return pool_step((len(self.queries), len(self.keys)), self.box(0, 0, 0.0, 0.0))

    def box(self, row: int, column: int, x: float, y: float) -> Box:
        """Return the place of a map where everything has its upper left corner at a point."""
        left = x + self.left + column * (self.side + self.across)
        return Box(left, y + self.up + row * (self.map_height + self.down), self.side, self.map_height)

    def name(self, axes: Axes, row: int, column: int, box: Box) -> None:
        """Write the words beside a map of the first column, and above one of the first row."""
        if column == 0 and self._rows_named:
            name_rows(axes, self.queries, box, WORDS)
        if row == 0 and self._columns_named:
            name_columns(axes, self.keys, box, WORDS)

    @property
    def _rows_named(self) -> bool:
        return stride(len(self.queries), self.map_height, WORDS) == 1

    @property
    def _columns_named(self) -> bool:
        return stride(len(self.keys), self.side, WORDS) == 1


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """The weights of all layers and heads of one kind of attention, over the words of one input."""

    kind: str
    weights: Float[np.ndarray, "L H Q K"]
    queries: Sequence[str]
    keys: Sequence[str]


@in_style
def draw_head_grid(kinds: Sequence[HeadWeights], title: str = "What each head attends to") -> Figure:
    """Draw each kind as a block of maps, all of them in one scale."""
    if not kinds:
        raise ValueError("a grid of heads needs one kind of attention or more, got 0")
    blocks = [_Block(each, PAGE / len(kinds)) for each in kinds]
    wide, top = title_size(title, BELOW)
    lefts = MARGIN + np.cumsum([0.0, *(block.width + BETWEEN for block in blocks)])
    bottom = top + max(block.height for block in blocks) + 0.15
    wide = max(wide, lefts[-1] - BETWEEN + MARGIN, key_room(1.5, KEY))
    figure, axes = make_sheet(wide, bottom + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    shade = weight_scale(*(each.weights for each in kinds), root=True)
    for left, block in zip(lefts, blocks, strict=False):
        block.draw(axes, float(left), top, shade)
    draw_key(figure, shade, Box(MARGIN, bottom, 1.5, KEY_HEIGHT), KEY)
    return figure


class _Block:
    """One kind's maps, their names, and the room that all of it takes."""

    def __init__(self, heads: HeadWeights, page: float):
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

    def draw(self, axes: Axes, left: float, top: float, shade: ColourScale) -> None:
        """Draw it with the upper left corner at a point."""
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


ONE_CELL = 0.4, 0.28  # inches, wide enough for a number
ONE_BELOW = "queries in rows, keys in columns"


@in_style
def draw_one_head(
    weights: Float[np.ndarray, "Q K"],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "What one head attends to",
    entropy: bool = False,
) -> Figure:
    """Draw a head's weights with words on both sides, and on wish how spread out each row is."""
    Q, K = weights.shape
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    wide, top = title_size(title, ONE_BELOW)
    box, right = place_map(queries, keys, ONE_CELL, top + 0.1 * entropy)
    bars = Box(right + 0.15, box.top, _bars_width(K), box.height)
    right = bars.right + text_width("0.00", SMALL) + PAD if entropy else right
    figure, axes = make_sheet(max(wide, right + MARGIN, key_room(1.5, "weight")), box.bottom + 0.15 + KEY_HEIGHT)
    write_title(axes, title, ONE_BELOW)
    shade = weight_scale(weights)
    draw_matrix(axes, weights, box, shade)
    write_cell_numbers(axes, weights, box, shade)
    name_rows(axes, queries, box)
    name_columns(axes, keys, box)
    if entropy:
        _draw_entropies(axes, weights, bars)
    draw_key(figure, shade, Box(MARGIN, box.bottom + 0.15, 1.5, KEY_HEIGHT), "weight")
    return figure


def entropies(weights: Float[np.ndarray, "Q K"]) -> Float[np.ndarray, " Q"]:
    """Return −Σ w log w of each row in nats, a row of zeros having 0."""
    return -(weights * np.log(np.where(weights > 0, weights, 1.0))).sum(1)


def _headings(K: int) -> tuple[str, str]:
    return "entropy of the row", f"frame: log {K} = {np.log(K):.2f} nats"


def _bars_width(K: int) -> float:
    return widest(_headings(K), SMALL)


def _draw_entropies(axes: Axes, weights: Float[np.ndarray, "Q K"], box: Box) -> None:
    """Draw a bar for each row, which would fill the frame if all keys weighed the same."""
    Q, K = weights.shape
    pitch = box.height / Q
    for up, heading in zip((1.5, 0.5), _headings(K), strict=True):
        write(axes, box.left, box.top - PAD - up * line_height(SMALL), heading, SMALL, color=GREY)
    axes.add_patch(
        Rectangle((box.left, box.top), box.width, box.height, fill=False, edgecolor="#aaaaaa", linewidth=0.5)
    )
    for i, entropy in enumerate(entropies(weights).tolist()):
        length = box.width * (min(entropy / np.log(K), 1.0) if K > 1 else 0.0)
        axes.add_patch(Rectangle((box.left, box.top + (i + 0.15) * pitch), length, 0.7 * pitch, color=COLOURS[0]))
        if pitch >= line_height(SMALL):
            write(axes, box.right + PAD, box.top + (i + 0.5) * pitch, f"{entropy:z.2f}", SMALL)


TERM_GAP = 0.15
TERM_PAGE = 13.0  # width that a row of maps should not exceed
IN_A_ROW = 8
TERM_SMALLEST, TERM_LARGEST = 1.25, 4.0  # sides of a map
TERM_CELL = 0.45  # largest side of a cell


@in_style
def draw_term_maps(
    names: Sequence[str],
    terms: Float[np.ndarray, "N Q K"],
    score: Float[np.ndarray, "_ _"],
    queries: Sequence[str],
    keys: Sequence[str],
    title: str = "What a score is made of",
) -> Figure:
    """Draw each term, then their sum, all about 0 in one scale; the title says how far the sum is from the score.

    Where the score is not finite, the pair is masked. With many terms, each of them small, shades follow the root.
    """
    N, Q, K = terms.shape
    check_words("names", names, N, "terms")
    check_words("queries", queries, Q, "rows")
    check_words("keys", keys, K, "columns")
    title = f"{title}: {N} term{'s' * (N > 1)}, error of the sum {sum_error(terms, score):.1e}"
    tiles = _lay_tiles(queries, keys, N + 1)
    below = _below(score, tiles.pool)
    wide, top = title_size(title, below)
    bottom = top + line_height(NAME) + tiles.height + TERM_GAP
    meaning = "part of the score" + " (shaded by its root)" * (N > IN_A_ROW)
    figure, axes = make_sheet(max(wide, tiles.width + 2 * MARGIN, key_room(1.8, meaning)), bottom + KEY_HEIGHT)
    write_title(axes, title, below)
    maps = np.where(np.isfinite(score), [*terms, terms.sum(0)], np.nan)
    shade = score_scale(maps, root=N > IN_A_ROW)
    for at, (name, values) in enumerate(zip([*names, "sum"], maps, strict=True)):
        row, column = divmod(at, tiles.columns)
        box = tiles.box(row, column, MARGIN, top + line_height(NAME))
        _draw_term(axes, values, box, shade)
        tiles.name(axes, row, column, box)
        y = box.top - (tiles.up if row == 0 else 0.0) - line_height(NAME) / 2
        (write_strong if at == N else write)(axes, box.left, y, fit_text(name, SMALL, box.width), SMALL)
    draw_key(figure, shade, Box(MARGIN, bottom, 1.8, KEY_HEIGHT), meaning)
    return figure


def sum_error(terms: Float[np.ndarray, "N Q K"], score: Float[np.ndarray, "_ _"]) -> float:
    """Return the largest distance of the terms' sum from the score, where nothing is masked."""
    if terms.shape[1:] != score.shape:
        raise ValueError(f"terms and score must have the same size, got {terms.shape[1:]} and {score.shape}")
    allowed = np.isfinite(score)
    return float(np.abs(terms.sum(0)[allowed] - score[allowed]).max(initial=0.0))


def _lay_tiles(queries: Sequence[str], keys: Sequence[str], n: int) -> Tiles:
    """Spread the maps over rows of nearly equal length."""
    rows = ceil(n / IN_A_ROW)
    columns = ceil(n / rows)
    side = float(
        np.clip(
            TERM_PAGE / columns - TERM_GAP, TERM_SMALLEST, min(TERM_LARGEST, max(TERM_SMALLEST, TERM_CELL * len(keys)))
        )
    )
    return Tiles(queries, keys, rows, columns, side, TERM_GAP, TERM_GAP + line_height(NAME))


def _below(score: Float[np.ndarray, "Q K"], pool: int) -> str:
    """Say how to read the maps, with what is true of these alone."""
    grey = "" if np.isfinite(score).all() else "; grey: masked"
    return ONE_BELOW + grey + dots(pool)


def _draw_term(axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: ColourScale) -> None:
    draw_matrix(axes, values, box, shade)
    write_cell_numbers(axes, values, box, shade, "z.1f", SMALL)
