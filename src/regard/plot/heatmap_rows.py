"""Matrices in rows and columns, all in one scale of colours."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.shade import NOTHING
from regard.plot.words import check_words

SIDE = 2.5  # inches that a matrix has where no size is given
WIDEST = 10.0  # and all of a row together
# Maps with two arms, whose middle means 0.
DIVERGING = {"PiYG", "PRGn", "BrBG", "PuOr", "RdGy", "RdBu", "RdYlBu", "RdYlGn", "coolwarm", "bwr", "seismic"}


@in_style
def draw_heatmaps(
    matrices: Float[np.ndarray, "R C Q K"],
    xlabel: str,
    ylabel: str,
    titles: Sequence[str] | None = None,
    figsize: tuple[float | int, float | int] | None = None,
    cmap: str = "Reds",
) -> Figure:
    """Draws each matrix by itself, a title above each column; grey where a number is not finite."""
    R, C, _, _ = matrices.shape
    if titles is not None:
        check_words("titles", titles, C, "columns")
    figure = Drawing(figsize=figsize or _size(R, C))
    rows = figure.subplots(R, C, sharex=True, sharey=True, squeeze=False)
    colours, finite = mpl.colormaps[cmap].with_extremes(bad=NOTHING), matrices[np.isfinite(matrices)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if cmap.removesuffix("_r") in DIVERGING:
        low, high = -max(-low, high), max(-low, high)
    for (r, c), axes in np.ndenumerate(rows):
        image = axes.imshow(matrices[r, c], cmap=colours, vmin=low, vmax=high, interpolation="nearest")
        axes.set(xlabel=xlabel if r == R - 1 else "", ylabel=ylabel if c == 0 else "")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(titles[c] if titles is not None and r == 0 else "")
    figure.colorbar(image, ax=rows, shrink=0.6).outline.set_visible(False)  # pyright: ignore
    return figure


def _size(R: int, C: int) -> tuple[float, float]:
    side = min(SIDE, WIDEST / C)
    return side * C + 1.0, side * R
