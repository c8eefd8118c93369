"""A matrix in a box on a sheet, with words along its sides and numbers in its cells."""

from collections.abc import Sequence
from math import ceil

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from regard.plot.measure import line_height, text_width, widest
from regard.plot.shade import Shade
from regard.plot.sheet import GREY, MARGIN, NAME, Box, write
from regard.plot.words import readable

PAD = 0.05  # inches between words and what they name
PAGE = 13.0  # what a side of a map does not exceed, however many words there are
DOTS = 72  # cells in an inch of a map, each then two pixels wide in a PNG
FAINT = "#999999"
_SLANT = 0.7072  # sine and cosine of 45°


def draw_matrix(axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: Shade) -> None:
    """Fills the box with shades, the first row on top, what is not finite in grey, what is too small to see pooled."""
    axes.imshow(
        np.ma.masked_invalid(pooled(values, pool_step(values.shape, box))),
        extent=(box.left, box.right, box.bottom, box.top),
        cmap=shade.colours,
        norm=shade.norm,
        aspect="auto",
        interpolation="nearest",
    )
    axes.add_patch(
        Rectangle((box.left, box.top), box.width, box.height, fill=False, edgecolor="#aaaaaa", linewidth=0.5)
    )


def pool_step(shape: tuple[int, ...], box: Box) -> int:
    """Gives the side of the squares of cells that must share a dot so that all dots can be seen."""
    return max(ceil(shape[0] / (DOTS * box.height)), ceil(shape[1] / (DOTS * box.width)))


def dots(step: int) -> str:
    """Says what a dot stands for, where it is more than one cell."""
    return f"; a dot: the largest of {step} × {step} cells" if step > 1 else ""


def pooled(values: Float[np.ndarray, "Q K"], step: int) -> Float[np.ndarray, "q k"]:
    """Gives the finite number furthest from 0 of each square of cells: a mean would wash out thin lines."""
    if step == 1:
        return values
    finite = np.where(np.isfinite(values), values, np.nan)
    starts = [np.linspace(0, n, ceil(n / step) + 1).astype(int)[:-1] for n in values.shape]
    high, low = (
        pick.reduceat(pick.reduceat(finite, starts[0], axis=0), starts[1], axis=1) for pick in (np.fmax, np.fmin)
    )
    return np.where(-low > high, low, high)


def write_numbers(
    axes: Axes, values: Float[np.ndarray, "Q K"], box: Box, shade: Shade, form: str = "z.2f", size: float = NAME
) -> None:
    """Writes each finite number into its cell if all of them fit, those that round to 0 faintly."""
    if box.height / len(values) < line_height(size):
        return
    texts = [number(value, form) for value in values.flatten().tolist()]
    pairs = zip(shade.inks(values), texts, strict=True)
    inks = [ink if set(text) & set("123456789") else FAINT for ink, text in pairs]
    write_cells(axes, texts, inks, values.shape, box, size)


def number(value: float, form: str) -> str:
    """Writes a number as in print, and nothing for one that is not finite."""
    return format(value, form).replace("-", "−") if np.isfinite(value) else ""


def write_cells(
    axes: Axes, texts: Sequence[str], inks: Sequence[str], shape: tuple[int, ...], box: Box, size: float = NAME
) -> None:
    """Writes a text into each cell, row by row, if all of them fit."""
    width, height = box.width / shape[1], box.height / shape[0]
    if height < line_height(size) or width < widest(sorted(set(texts), key=len)[-20:], size) + PAD:
        return
    for at, (text, ink) in enumerate(zip(texts, inks, strict=True)):
        i, j = divmod(at, shape[1])
        place = box.left + (j + 0.5) * width, box.top + (i + 0.5) * height
        if text:
            write(axes, *place, text, size, ha="center", va="center_baseline", color=ink)


def stride(n: int, length: float, size: float) -> int:
    """Gives the smallest step at which lines of text fit along a side."""
    return ceil(line_height(size) * n / length - 1e-9)


def row_room(words: Sequence[str], size: float = NAME) -> float:
    """Gives the width in inches that the words of the rows take to the left of a box."""
    return widest([readable(word) for word in words], size) + 2 * PAD


def name_rows(axes: Axes, words: Sequence[str], box: Box, size: float = NAME) -> None:
    """Writes the words of the rows to the left of a box; each second, third … alone where there is no room for all."""
    pitch, step = box.height / len(words), stride(len(words), box.height, size)
    for i in range(0, len(words), step):
        y = box.top + (i + 0.5) * pitch
        _mark(axes, (box.left - PAD / 2, box.left), (y, y), step)
        write(axes, box.left - PAD, y, readable(words[i]), size, ha="right")


def column_room(words: Sequence[str], width: float, size: float = NAME) -> tuple[float, float]:
    """Gives the height in inches that the words of the columns take above a box, and what stands out to its right."""
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
    """Writes the words of the columns above a box, level where they fit, else slanted, else upright."""
    labels = [readable(word) for word in words]
    pitch, step = box.width / len(words), stride(len(words), box.width, size)
    turn = _turn(labels, pitch, size)
    look = {"va": "bottom", "ha": "left" if turn == 45 else "center", "rotation": turn}
    if turn == 45:
        look["rotation_mode"] = "anchor"
    for j in range(0, len(words), step):
        x = box.left + (j + 0.5) * pitch
        _mark(axes, (x, x), (box.top - PAD / 2, box.top), step)
        write(axes, x, box.top - PAD, labels[j], size, **look)


def place_map(
    rows: Sequence[str], columns: Sequence[str], cell: tuple[float, float], top: float, page: float = PAGE
) -> tuple[Box, float]:
    """Gives the place of a map below a title, its cells at most of this size, and where its words end at the right."""
    width, height = min(page, len(columns) * cell[0]), min(page, len(rows) * cell[1])
    up, out = column_room(columns, width)
    box = Box(MARGIN + row_room(rows), top + up, width, height)
    return box, box.right + out


def _turn(labels: Sequence[str], pitch: float, size: float) -> int:
    """Gives the angle in degrees at which labels stand without touching."""
    if widest(labels, size) + PAD <= pitch:
        return 0
    return 45 if pitch * _SLANT >= line_height(size) else 90


def _mark(axes: Axes, x: tuple[float, float], y: tuple[float, float], step: int) -> None:
    """Ties a word to its own row or column where its neighbours have none."""
    if step > 1:
        axes.plot(x, y, color=GREY, linewidth=0.5)
