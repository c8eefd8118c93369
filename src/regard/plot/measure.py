"""How much room a text takes."""

from bisect import bisect_right
from collections.abc import Sequence

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from rich.cells import cell_len

from regard.plot.words import shorten

POINTS = 72.0  # in an inch
LINE = 1.3  # height of a line in sizes of its letters
HINTED = 1.02  # letters that are moved to whole pixels may become a little wider


def text_width(text: str, size: float) -> float:
    """Gives the width in inches that a text of this size has in the fonts now set."""
    font = FontProperties(size=size)
    return HINTED * text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / POINTS


def widest(texts: Sequence[str], size: float) -> float:
    """Gives the width in inches of the widest text."""
    return max((text_width(text, size) for text in texts), default=0.0)


def fit_text(text: str, size: float, width: float) -> str:
    """Cuts a text to a width in inches."""
    if text_width(text, size) <= width:
        return text
    fitting = bisect_right(range(2, cell_len(text)), width, key=lambda most: text_width(shorten(text, most), size))
    return shorten(text, 1 + fitting) if fitting else "…"


def line_height(size: float) -> float:
    """Gives the inches that a line of text needs."""
    return LINE * size / POINTS
