"""Grids of heat maps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from regard.plot.canvas import MARGIN, NAME, SMALL, Box, line_height, text_width, write, write_strong
from regard.plot.heatmap import (
    PAD,
    ColourScale,
    column_room,
    draw_matrix,
    name_columns,
    name_rows,
    pool_step,
    row_room,
    stride,
    write_cells,
)

WORDS = 6.5  # size of the words in points


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


CELL = 0.46, 0.26  # inches
HEADING = line_height(NAME) + line_height(SMALL) + PAD  # above a map: its name, and the numbers of the heads
BETWEEN = 0.3
PAGE = 13.5  # width that maps side by side should not exceed


def draw_value_map(
    axes: Axes,
    name: str,
    values: Float[np.ndarray, "L H"],
    shade: ColourScale,
    texts: Sequence[str],
    corner: Sequence[float],
) -> None:
    """Draw a map whose values are shades and whose texts stand in the cells, row by row, from a corner on."""
    L, H = values.shape
    left, top = corner
    room = row_room(_layers(L), SMALL)
    box = Box(left + room, top + HEADING, H * CELL[0], L * CELL[1])
    write_strong(axes, left, top + line_height(NAME) / 2, name)
    y = box.top - PAD - line_height(SMALL) / 2
    write(axes, box.left - PAD, y, "head", SMALL, ha="right")
    for head in range(H):
        write(axes, box.left + (head + 0.5) * CELL[0], y, str(head), SMALL, ha="center")
    name_rows(axes, _layers(L), box, SMALL)
    draw_matrix(axes, values, box, shade)
    write_cells(axes, texts, shade.inks(values), values.shape, box, SMALL)


def map_size(name: str, values: Float[np.ndarray, "L H"]) -> tuple[float, float]:
    """Return the width and the height of such a map with its names."""
    L, H = values.shape
    wide = row_room(_layers(L), SMALL) + H * CELL[0]
    return max(wide, text_width(name, NAME)), HEADING + L * CELL[1]


def columns_for(sizes: Sequence[tuple[float, float]]) -> int:
    """Return the number of maps that fit side by side."""
    return max(1, min(len(sizes), int(PAGE / max(width for width, _ in sizes))))


def arrange(sizes: Sequence[tuple[float, float]], columns: int, top: float) -> tuple[list[list[float]], float, float]:
    """Set maps in rows; return the upper left corner of each, and where all of them end at the right and below."""
    widths = [max(width for width, _ in sizes[at::columns]) + BETWEEN for at in range(min(columns, len(sizes)))]
    heights = [max(height for _, height in sizes[at : at + columns]) for at in range(0, len(sizes), columns)]
    lefts = MARGIN + np.cumsum([0.0, *widths])
    tops = top + np.cumsum([0.0, *(height + BETWEEN / 2 for height in heights)])
    corners = [[float(lefts[at % columns]), float(tops[at // columns])] for at in range(len(sizes))]
    return corners, float(lefts[-1] - BETWEEN), float(tops[-1])


def _layers(L: int) -> list[str]:
    return [f"layer {layer}" for layer in range(L)]
