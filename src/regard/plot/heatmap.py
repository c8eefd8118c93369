"""Matrices with labels and colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, FuncNorm, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from regard.plot.canvas import GREY, MARGIN, NAME, SMALL, Box, check_words, line_height, text_width, widest, write
from regard.plot.style import in_style, new_figure
from regard.shapes import Float
from regard.terminal import readable

NOTHING = "#d9d9d9"  # where there is no number, or none that is finite
KEY_HEIGHT = 0.5  # inches that a key with its numbers needs


@dataclass(frozen=True, eq=False)
class ColourScale:
    """A scale of colours, to be shared by all that is to be compared."""

    colours: Colormap
    norm: Normalize

    def inks(self, numbers: Float[np.ndarray, "..."]) -> list[str]:
        """Return the colour in which each number can be read on its own shade, row by row."""
        red, green, blue, _ = np.moveaxis(self.colours(self.norm(np.ma.masked_invalid(numbers.flatten()))), -1, 0)
        return np.where(0.299 * red + 0.587 * green + 0.114 * blue < 0.5, "white", "black").tolist()


def weight_scale(*weights: Float[np.ndarray, "..."], root: bool = False) -> ColourScale:
    """Shade from white at 0 to dark blue at the largest weight; `root` by the square root, so that small ones show."""
    top = max((float(each.max()) for each in weights if each.size), default=0.0) or 1.0
    colours = mpl.colormaps["Blues"].with_extremes(bad=NOTHING)
    return ColourScale(colours, PowerNorm(0.5, 0.0, top) if root else Normalize(0.0, top))


def score_scale(*scores: Float[np.ndarray, "..."], root: bool = False) -> ColourScale:
    """Shade from red below 0 over white to blue above, as far to either side as the largest finite number lies."""
    top = max((float(np.abs(each[np.isfinite(each)]).max(initial=0.0)) for each in scores), default=0.0) or 1.0
    norm = FuncNorm((_signed_root, _signed_square), -top, top) if root else Normalize(-top, top)
    return ColourScale(mpl.colormaps["RdBu"].with_extremes(bad=NOTHING), norm)


def _signed_root(x: Any) -> Any:
    return np.sign(x) * np.sqrt(np.abs(x))


def _signed_square(x: Any) -> Any:
    return np.sign(x) * np.square(x)


def draw_key(figure: Figure, shade: ColourScale, box: Box, label: str) -> None:
    """Draw the scale itself as a bar in the upper part of a box, its numbers below, its meaning to the right."""
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


def key_room(width: float, label: str) -> float:
    """Return the width in inches of a sheet on which a key with a bar of this width has room, margins included."""
    return 2 * MARGIN + width + 0.4 + text_width(label, NAME)


def _ticks(norm: Normalize) -> list[float]:
    """Mark the ends and the middle."""
    return np.asarray(norm.inverse(np.array([0.0, 0.5, 1.0]))).tolist()


PAD = 0.05  # inches between words and what they name
PAGE = 13.0  # what a side of a map does not exceed, however many words there are
DOTS = 72  # cells in an inch of a map, each then two pixels wide in a PNG
FAINT = "#999999"
_SLANT = 0.7072  # sine and cosine of 45°


def shade_cells(axes: Axes, values: Float[np.ndarray, "Q K"], shade: ColourScale, **place: Any) -> AxesImage:
    """Draw each number as the shade of its cell, the first row on top, what is not finite in grey."""
    cells = np.ma.masked_invalid(values)
    return axes.imshow(cells, cmap=shade.colours, norm=shade.norm, interpolation="nearest", **place)


def draw_matrix(axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: ColourScale) -> None:
    """Fill the box with shades, what is too small to see pooled, and frame it."""
    extent = (box.left, box.right, box.bottom, box.top)
    shade_cells(axes, pooled(values, pool_step(values.shape, box)), shade, extent=extent, aspect="auto")
    axes.add_patch(
        Rectangle((box.left, box.top), box.width, box.height, fill=False, edgecolor="#aaaaaa", linewidth=0.5)
    )


def pool_step(shape: tuple[int, ...], box: Box) -> int:
    """Return the side of the squares of cells that must share a dot so that all dots can be seen."""
    return max(ceil(shape[0] / (DOTS * box.height)), ceil(shape[1] / (DOTS * box.width)))


def dots(step: int) -> str:
    """Say what a dot stands for, where it is more than one cell."""
    return f"; a dot: the largest of {step} × {step} cells" if step > 1 else ""


def pooled(values: Float[np.ndarray, "Q K"], step: int) -> Float[np.ndarray, "q k"]:
    """Return the finite number furthest from 0 of each square of cells: a mean would wash out thin lines."""
    if step == 1:
        return values
    finite = np.where(np.isfinite(values), values, np.nan)
    starts = [np.linspace(0, n, ceil(n / step) + 1).astype(int)[:-1] for n in values.shape]
    high, low = (
        pick.reduceat(pick.reduceat(finite, starts[0], axis=0), starts[1], axis=1) for pick in (np.fmax, np.fmin)
    )
    return np.where(-low > high, low, high)


def write_cell_numbers(
    axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: ColourScale, form: str = "z.2f", size: float = NAME
) -> None:
    """Write each finite number into its cell if all of them fit, those that round to 0 faintly."""
    if box.height / len(values) < line_height(size):
        return
    texts = [number(value, form) for value in values.flatten().tolist()]
    pairs = zip(shade.inks(values), texts, strict=True)
    inks = [ink if set(text) & set("123456789") else FAINT for ink, text in pairs]
    write_cells(axes, texts, inks, values.shape, box, size)


def number(value: float, form: str) -> str:
    """Write a number as in print, and nothing for one that is not finite."""
    return format(value, form).replace("-", "−") if np.isfinite(value) else ""


def write_cells(
    axes: Axes, texts: Sequence[str], inks: Sequence[str], shape: tuple[int, ...], box: Box, size: float = NAME
) -> None:
    """Write a text into each cell, row by row, if all of them fit."""
    width, height = box.width / shape[1], box.height / shape[0]
    if height < line_height(size) or width < widest(sorted(set(texts), key=len)[-20:], size) + PAD:
        return
    for at, (text, ink) in enumerate(zip(texts, inks, strict=True)):
        i, j = divmod(at, shape[1])
        place = box.left + (j + 0.5) * width, box.top + (i + 0.5) * height
        if text:
            write(axes, *place, text, size, ha="center", va="center_baseline", color=ink)


def stride(n: int, length: float, size: float) -> int:
    """Return the smallest step at which lines of text fit along a side."""
    return ceil(line_height(size) * n / length - 1e-9)


def row_room(words: Sequence[str], size: float = NAME) -> float:
    """Return the width in inches that the words of the rows take to the left of a box."""
    return widest([readable(word) for word in words], size) + 2 * PAD


def name_rows(axes: Axes, words: Sequence[str], box: Box, size: float = NAME) -> None:
    """Write the words of the rows to the left of a box; each second, third … alone where there is no room for all."""
    pitch, step = box.height / len(words), stride(len(words), box.height, size)
    for i in range(0, len(words), step):
        y = box.top + (i + 0.5) * pitch
        _mark(axes, (box.left - PAD / 2, box.left), (y, y), step)
        write(axes, box.left - PAD, y, readable(words[i]), size, ha="right")


def column_room(words: Sequence[str], width: float, size: float = NAME) -> tuple[float, float]:
    """Return the height in inches that the words of the columns take above a box, and what stands out to its right."""
    labels = [readable(word) for word in words]
    turn = _turn(labels, width / len(words), size)
    longest, line = widest(labels, size), line_height(size)
    if turn == 0:
        return line + PAD, 0.0
    if turn == 90:
        return longest + 2 * PAD, 0.0
    pitch, out = width / len(words), 0.0
    for j, label in enumerate(labels):
        out = max(out, (text_width(label, size) + line / 2) * _SLANT - (len(words) - j - 0.5) * pitch)
    return (longest + line) * _SLANT + PAD, out


def name_columns(axes: Axes, words: Sequence[str], box: Box, size: float = NAME) -> None:
    """Write the words of the columns above a box, level where they fit, else slanted, else upright."""
    labels = [readable(word) for word in words]
    pitch, step = box.width / len(words), stride(len(words), box.width, size)
    turn = _turn(labels, pitch, size)
    style = {"va": "bottom", "ha": "left" if turn == 45 else "center", "rotation": turn}
    if turn == 45:
        style["rotation_mode"] = "anchor"
    for j in range(0, len(words), step):
        x = box.left + (j + 0.5) * pitch
        _mark(axes, (x, x), (box.top - PAD / 2, box.top), step)
        write(axes, x, box.top - PAD, labels[j], size, **style)


def place_map(
    rows: Sequence[str], columns: Sequence[str], cell: tuple[float, float], top: float, page: float = PAGE
) -> tuple[Box, float]:
    """Return the place of a map below a title, its cells at most of this size, and where its words end at the right."""
    width, height = min(page, len(columns) * cell[0]), min(page, len(rows) * cell[1])
    up, out = column_room(columns, width)
    box = Box(MARGIN + row_room(rows), top + up, width, height)
    return box, box.right + out


def _turn(labels: Sequence[str], pitch: float, size: float) -> int:
    """Return the angle in degrees at which labels stand without touching."""
    if widest(labels, size) + PAD <= pitch:
        return 0
    return 45 if pitch * _SLANT >= line_height(size) else 90


def _mark(axes: Axes, x: tuple[float, float], y: tuple[float, float], step: int) -> None:
    """Tie a word to its own row or column where its neighbours have none."""
    if step > 1:
        axes.plot(x, y, color=GREY, linewidth=0.5)


def draw_weights(
    axes: Axes,
    weights: Float[Tensor, "Q K"],
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    largest: float | None = None,
    numbers: bool = False,
) -> None:
    """Draw weights on axes of their own, from white (0) to blue (`largest`, by default the largest there is)."""
    values = weights.numpy()
    shade = weight_scale(values if largest is None else np.array(largest))
    shade_cells(axes, values, shade, aspect="auto")
    axes.spines[:].set_visible(False)
    if columns:
        axes.set_xticks(range(len(columns)), columns)
    if rows:
        axes.set_yticks(range(len(rows)), rows)
    if numbers:
        for (i, j), ink in zip(np.ndindex(values.shape), shade.inks(values), strict=True):
            axes.text(j, i, f"{values[i, j]:.2f}", ha="center", va="center", color=ink, fontsize="small")


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
    """Draw each matrix by itself, a title above each column; grey where a number is not finite."""
    R, C, _, _ = matrices.shape
    if titles is not None:
        check_words("titles", titles, C, "columns")
    figure = new_figure(figsize=figsize or _size(R, C))
    rows = figure.subplots(R, C, sharex=True, sharey=True, squeeze=False)
    colours, finite = mpl.colormaps[cmap].with_extremes(bad=NOTHING), matrices[np.isfinite(matrices)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if cmap.removesuffix("_r") in DIVERGING:
        low, high = -max(-low, high), max(-low, high)
    shade = ColourScale(colours, Normalize(low, high))
    for (r, c), axes in np.ndenumerate(rows):
        image = shade_cells(axes, matrices[r, c], shade)
        axes.set(xlabel=xlabel if r == R - 1 else "", ylabel=ylabel if c == 0 else "")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_title(titles[c] if titles is not None and r == 0 else "")
    figure.colorbar(image, ax=rows, shrink=0.6).outline.set_visible(False)  # pyright: ignore
    return figure


def _size(R: int, C: int) -> tuple[float, float]:
    side = min(SIDE, WIDEST / C)
    return side * C + 1.0, side * R
