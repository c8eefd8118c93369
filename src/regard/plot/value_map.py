"""A map of layers and heads with a number in each cell."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from regard.plot.matrix import PAD, draw_matrix, name_rows, row_room, write_cells
from regard.plot.measure import line_height, text_width
from regard.plot.shade import Shade
from regard.plot.sheet import MARGIN, NAME, SMALL, Box, write, write_strong

CELL = 0.46, 0.26  # inches
HEADING = line_height(NAME) + line_height(SMALL) + PAD  # above a map: its name, and the numbers of the heads
BETWEEN = 0.3
PAGE = 13.5  # width that maps side by side should not exceed


def draw_value_map(
    axes: Axes, name: str, values: Float[np.ndarray, "L H"], shade: Shade, texts: Sequence[str], corner: Sequence[float]
) -> None:
    """Draws a map whose values are shades and whose texts stand in the cells, row by row, from a corner on."""
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
    """Gives the width and the height of such a map with its names."""
    L, H = values.shape
    wide = row_room(_layers(L), SMALL) + H * CELL[0]
    return max(wide, text_width(name, NAME)), HEADING + L * CELL[1]


def columns_for(sizes: Sequence[tuple[float, float]]) -> int:
    """Gives the number of maps that fit side by side."""
    return max(1, min(len(sizes), int(PAGE / max(width for width, _ in sizes))))


def arrange(sizes: Sequence[tuple[float, float]], columns: int, top: float) -> tuple[list[list[float]], float, float]:
    """Sets maps in rows; gives the upper left corner of each, and where all of them end at the right and below."""
    widths = [max(width for width, _ in sizes[at::columns]) + BETWEEN for at in range(min(columns, len(sizes)))]
    heights = [max(height for _, height in sizes[at : at + columns]) for at in range(0, len(sizes), columns)]
    lefts = MARGIN + np.cumsum([0.0, *widths])
    tops = top + np.cumsum([0.0, *(height + BETWEEN / 2 for height in heights)])
    corners = [[float(lefts[at % columns]), float(tops[at // columns])] for at in range(len(sizes))]
    return corners, float(lefts[-1] - BETWEEN), float(tops[-1])


def _layers(L: int) -> list[str]:
    return [f"layer {layer}" for layer in range(L)]
