"""Layout in inches, text metrics."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from rich.cells import cell_len

from regard.plot.style import shown_size, to_png
from regard.terminal import shorten


class Drawing(Figure):
    """A figure that is shown without pyplot, whichever backend is set."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """Return a sharp picture, and the size at which its letters have theirs."""
        return {"image/png": to_png(self), "text/plain": repr(self)}, {"image/png": shown_size(self)}


def check_words(what: str, words: Sequence[str], n: int, of: str) -> None:
    """Raise ValueError where there is not one word for each row or column, or nothing to draw."""
    if len(words) != n:
        raise ValueError(f"{what} must be as many as the {of}, got {len(words)} and {n}")
    if n == 0:
        raise ValueError(f"a figure needs 1 or more {what}, got 0")


POINTS = 72.0  # in an inch
LINE = 1.3  # height of a line in sizes of its letters
HINTED = 1.02  # letters that are moved to whole pixels may become a little wider


def text_width(text: str, size: float) -> float:
    """Return the width in inches that a text of this size has in the fonts now set."""
    font = FontProperties(size=size)
    return HINTED * text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / POINTS


def widest(texts: Sequence[str], size: float) -> float:
    """Return the width in inches of the widest text."""
    return max((text_width(text, size) for text in texts), default=0.0)


def fit_text(text: str, size: float, width: float) -> str:
    """Cut a text to a width in inches."""
    if text_width(text, size) <= width:
        return text
    fitting = bisect_right(range(2, cell_len(text)), width, key=lambda most: text_width(shorten(text, most), size))
    return shorten(text, 1 + fitting) if fitting else "…"


def line_height(size: float) -> float:
    """Return the inches that a line of text needs."""
    return LINE * size / POINTS


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
        """Return where it ends."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Return where it ends below."""
        return self.top + self.height


def make_sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """Make a figure with one pair of axes that counts inches, downwards as lines of text do."""
    figure = Drawing(figsize=(width, height))
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    return figure, axes


def write(axes: Axes, x: float, y: float, text: str, size: float = NAME, **style: Any) -> Text:
    """Write a text as it is, dollar signs included, to the right of a point unless told otherwise."""
    return axes.text(x, y, text, fontsize=size, parse_math=False, **{"va": "center", **style})


def write_strong(axes: Axes, x: float, y: float, text: str, size: float = NAME, **style: Any) -> Text:
    """Write a text in heavy letters, which not every font has: each line of a letter is drawn a little thicker."""
    return write(
        axes,
        x,
        y,
        text,
        size,
        path_effects=[withStroke(linewidth=size / 25, foreground=style.get("color", "black"))],
        **style,
    )


def write_title(axes: Axes, title: str, below: str = "") -> None:
    """Write the title in the upper left corner, and under it in grey how to read the figure."""
    y = MARGIN + line_height(TITLE) / 2
    write_strong(axes, MARGIN, y, _cut(title), TITLE)
    if below:
        write(axes, MARGIN, y + (line_height(TITLE) + line_height(NAME)) / 2, below, NAME, color=GREY)


def title_size(title: str, below: str = "") -> tuple[float, float]:
    """Return the width that a title needs, and the height at which the rest may begin."""
    height = MARGIN + line_height(TITLE) + (line_height(NAME) if below else 0.0)
    wide = max(text_width(_cut(title), TITLE), text_width(below, NAME))
    return wide + 2 * MARGIN, height + 0.1


def _cut(title: str) -> str:
    """Leave of a title, which may be somebody's sentence, one line that makes no figure wide for its own sake."""
    return fit_text(" ".join(title.split()), TITLE, WIDEST)
