"""What colour a number has: from white to blue for weights, red and blue about 0 for scores."""

from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, FuncNorm, Normalize, PowerNorm
from matplotlib.figure import Figure

from regard.plot.measure import line_height, widest
from regard.plot.sheet import NAME, SMALL, Box, write

NOTHING = "#d9d9d9"  # where there is no number, or none that is finite
KEY_HEIGHT = 0.5  # inches that a key with its numbers needs


@dataclass(frozen=True, eq=False)
class Shade:
    """A scale of colours, to be shared by all that is to be compared."""

    colours: Colormap
    norm: Normalize

    def inks(self, numbers: Float[np.ndarray, "..."]) -> list[str]:
        """Gives the colour in which each number can be read on its own shade, row by row."""
        red, green, blue, _ = np.moveaxis(self.colours(self.norm(np.ma.masked_invalid(numbers.flatten()))), -1, 0)
        return np.where(0.299 * red + 0.587 * green + 0.114 * blue < 0.5, "white", "black").tolist()


def weight_shade(*weights: Float[np.ndarray, "..."], root: bool = False) -> Shade:
    """Shades from white at 0 to dark blue at the largest weight; `root` by the square root, so that small ones show."""
    top = max((float(each.max()) for each in weights if each.size), default=0.0) or 1.0
    colours = mpl.colormaps["Blues"].with_extremes(bad=NOTHING)
    return Shade(colours, PowerNorm(0.5, 0.0, top) if root else Normalize(0.0, top))


def score_shade(*scores: Float[np.ndarray, "..."], root: bool = False) -> Shade:
    """Shades from red below 0 over white to blue above, as far to either side as the largest finite number lies."""
    top = max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in scores), default=0.0) or 1.0
    norm = FuncNorm((_signed_root, _signed_square), -top, top) if root else Normalize(-top, top)
    return Shade(mpl.colormaps["RdBu"].with_extremes(bad=NOTHING), norm)


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def draw_key(figure: Figure, shade: Shade, box: Box, label: str) -> None:
    """Draws the scale itself as a bar in the upper part of a box, its numbers below, its meaning to the right."""
    width, height = figure.get_size_inches()
    bar = 0.1
    texts = [f"{tick:.2g}".replace("-", "−") for tick in _ticks(shade.norm)]
    left = box.left + widest(texts, SMALL) / 2  # so that the first number does not stand out
    place = (left / width, 1 - (box.top + bar) / height, box.width / width, bar / height)
    axes = figure.add_axes(place)
    drawn: Any = figure.colorbar(ScalarMappable(shade.norm, shade.colours), cax=axes, orientation="horizontal")
    drawn.outline.set_visible(False)
    drawn.set_ticks(_ticks(shade.norm), labels=texts)
    axes.tick_params(labelsize=SMALL, length=2, pad=1)
    write(figure.axes[0], left + box.width + 0.2, box.top + line_height(NAME) / 3, label, NAME)


def _ticks(norm: Normalize) -> list[float]:
    """Marks the ends and the middle."""
    return np.asarray(norm.inverse(np.array([0.0, 0.5, 1.0]))).tolist()
