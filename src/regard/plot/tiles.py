"""Equal maps in rows and columns over the same words, which stand once at the left and once above."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from matplotlib.axes import Axes

from regard.plot.matrix import column_room, name_columns, name_rows, pool_step, row_room, stride
from regard.plot.sheet import Box

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
        """Gives the height of a map, whose cells are square unless it would become a ribbon."""
        return self.side * float(np.clip(len(self.queries) / len(self.keys), 0.5, 2.0))

    @cached_property
    def left(self) -> float:
        """Gives the width of the words at the left."""
        return row_room(self.queries, WORDS) if self._rows_named else 0.0

    @cached_property
    def up(self) -> float:
        """Gives the height of the words above."""
        return column_room(self.keys, self.side, WORDS)[0] if self._columns_named else 0.0

    @property
    def width(self) -> float:
        """Gives the width of everything, words included."""
        out = column_room(self.keys, self.side, WORDS)[1] if self._columns_named else 0.0
        return self.left + self.columns * (self.side + self.across) - self.across + out

    @property
    def height(self) -> float:
        """Gives the height of everything, words included."""
        return self.up + self.rows * (self.map_height + self.down) - self.down

    @property
    def pool(self) -> int:
        """Gives the side of the squares of cells that share a dot."""
        return pool_step((len(self.queries), len(self.keys)), self.box(0, 0, 0.0, 0.0))

    def box(self, row: int, column: int, x: float, y: float) -> Box:
        """Gives the place of a map where everything has its upper left corner at a point."""
        left = x + self.left + column * (self.side + self.across)
        return Box(left, y + self.up + row * (self.map_height + self.down), self.side, self.map_height)

    def name(self, axes: Axes, row: int, column: int, box: Box) -> None:
        """Writes the words beside a map of the first column, and above one of the first row."""
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
