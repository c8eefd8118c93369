"""A sheet measured in inches, on which everything has its place before it is drawn."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

from regard.plot.drawing import Drawing
from regard.plot.measure import fit_text, line_height, text_width

MARGIN = 0.15
TITLE = 10.0  # sizes in points
NAME = 8.0
SMALL = 7.0
GREY = "#666666"
WIDEST = 8.0  # inches of a title


@dataclass(frozen=True)
class Box:
    """A rectangle on the sheet, in inches from its upper left corner."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Gives where it ends."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Gives where it ends below."""
        return self.top + self.height


def make_sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """Makes a figure with one pair of axes that counts inches, downwards as lines of text do."""
    figure = Drawing(figsize=(width, height))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    return figure, axes


def write(axes: Axes, x: float, y: float, text: str, size: float = NAME, **look: Any) -> Text:
    """Writes a text as it is, dollar signs included, to the right of a point unless told otherwise."""
    return axes.text(x, y, text, fontsize=size, parse_math=False, **{"va": "center", **look})


def write_strong(axes: Axes, x: float, y: float, text: str, size: float = NAME, **look: Any) -> Text:
    """Writes a text in heavy letters, which not every font has: each line of a letter is drawn a little thicker."""
    return write(
        axes,
        x,
        y,
        text,
        size,
        path_effects=[withStroke(linewidth=size / 25, foreground=look.get("color", "black"))],
        **look,
    )


def write_title(axes: Axes, title: str, below: str = "") -> None:
    """Writes the title in the upper left corner, and under it in grey how to read the figure."""
    y = MARGIN + line_height(TITLE) / 2
    write_strong(axes, MARGIN, y, _cut(title), TITLE)
    if below:
        write(axes, MARGIN, y + (line_height(TITLE) + line_height(NAME)) / 2, below, NAME, color=GREY)


def title_size(title: str, below: str = "") -> tuple[float, float]:
    """Gives the width that a title needs, and the height at which the rest may begin."""
    height = MARGIN + line_height(TITLE) + (line_height(NAME) if below else 0.0)
    wide = max(text_width(_cut(title), TITLE), text_width(below, NAME))
    return wide + 2 * MARGIN, height + 0.1


def _cut(title: str) -> str:
    """Leaves of a title, which may be somebody's sentence, one line that makes no figure wide for its own sake."""
    return fit_text(" ".join(title.split()), TITLE, WIDEST)
