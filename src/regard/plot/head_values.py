"""Entropy and importance of heads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.plot.canvas import (
    MARGIN,
    NAME,
    SMALL,
    Box,
    line_height,
    make_sheet,
    text_width,
    title_size,
    write,
    write_strong,
    write_title,
)
from regard.plot.heatmap import (
    KEY_HEIGHT,
    NOTHING,
    PAD,
    ColourScale,
    draw_key,
    draw_matrix,
    name_rows,
    number,
    row_room,
    score_scale,
    write_cells,
)
from regard.plot.style import in_style
from regard.shapes import Float

if TYPE_CHECKING:
    from regard.trace.head_report import HeadReport, HeadSummary

BELOW = "in each cell the mean entropy of a head's rows in nats"
KEY = "entropy as a share of the largest, the logarithm of the number of keys"
SHARES = ColourScale(
    mpl.colormaps["Blues"].with_extremes(bad=NOTHING), Normalize(0.0, 1.0)
)  # from one key to all alike
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
    room = row_room(_layer_names(L), SMALL)
    box = Box(left + room, top + HEADING, H * CELL[0], L * CELL[1])
    write_strong(axes, left, top + line_height(NAME) / 2, name)
    y = box.top - PAD - line_height(SMALL) / 2
    write(axes, box.left - PAD, y, "head", SMALL, ha="right")
    for head in range(H):
        write(axes, box.left + (head + 0.5) * CELL[0], y, str(head), SMALL, ha="center")
    name_rows(axes, _layer_names(L), box, SMALL)
    draw_matrix(axes, values, box, shade)
    write_cells(axes, texts, shade.inks(values), values.shape, box, SMALL)


def map_size(name: str, values: Float[np.ndarray, "L H"]) -> tuple[float, float]:
    """Return the width and the height of such a map with its names."""
    L, H = values.shape
    wide = row_room(_layer_names(L), SMALL) + H * CELL[0]
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


def _layer_names(L: int) -> list[str]:
    return [f"layer {layer}" for layer in range(L)]


@dataclass(frozen=True, eq=False)
class HeadEntropies:
    """The mean entropy of each head of one kind of attention, in nats and as a share of the largest possible."""

    kind: str
    nats: Float[np.ndarray, "L H"]
    share: Float[np.ndarray, "_ _"]


@in_style
def draw_entropy_map(kinds: Sequence[HeadEntropies], title: str = "How spread out each head's attention is") -> Figure:
    """Draw a map for each kind of attention, from white (one key) to dark (all keys alike)."""
    if not kinds:
        raise ValueError("a map of entropies needs one kind of attention or more, got 0")
    for each in kinds:
        _check(each)
    sizes = [map_size(each.kind, each.nats) for each in kinds]
    wide, top = title_size(title, BELOW)
    corners, right, bottom = arrange(sizes, columns_for(sizes), top)
    figure, axes = make_sheet(max(wide, right + MARGIN, 6.0), bottom + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    for each, corner in zip(kinds, corners, strict=True):
        draw_value_map(axes, each.kind, each.share, SHARES, [f"{nats:.2f}" for nats in each.nats.flat], corner)
    draw_key(figure, SHARES, Box(MARGIN, bottom, 1.5, KEY_HEIGHT), KEY)
    return figure


def _check(each: HeadEntropies) -> None:
    if each.nats.shape != each.share.shape:
        raise ValueError(f"nats and share must have the same size, got {each.nats.shape} and {each.share.shape}")


IMPORTANCE_BELOW = "blue where the model needs a head, red where it is better without"
SPREAD = "; dark where a head attends to all keys alike"
ENTROPY = "entropy"
KEY_WIDTH = 1.5  # inches of the bar alone
KEY_ROOM = 3.0  # and with its meaning


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """What switching off each head of one kind of attention costs; NaN or no BLEU where it was not measured.

    How spread out their attention is stands beside it where it is given.
    """

    kind: str
    loss: Float[np.ndarray, "L H"]  # by how much the loss rises
    bleu: Float[np.ndarray, "_ _"] | None = None  # by how much BLEU falls
    entropies: HeadEntropies | None = None


@dataclass(frozen=True, eq=False)
class Measure:
    """One measure of all heads: for each kind what shades its map, and what stands in its cells."""

    name: str
    shade: ColourScale
    values: list[Float[np.ndarray, "_ _"]]
    texts: list[list[str]]


@in_style
def draw_importance_map(kinds: Sequence[HeadEffects], title: str = "How much each head matters") -> Figure:
    """Draw the rise of the loss for each kind of attention and, where known, the fall of BLEU and the entropy."""
    if not kinds:
        raise ValueError("a map of importance needs one kind of attention or more, got 0")
    measures = _measures(kinds)
    below = IMPORTANCE_BELOW + SPREAD * (measures[-1].name == ENTROPY)
    maps = [(f"{each.kind}: {measure.name}", measure, at) for at, each in enumerate(kinds) for measure in measures]
    sizes = [_with_key(map_size(name, measure.values[at])) for name, measure, at in maps]
    wide, top = title_size(title, below)
    corners, right, bottom = arrange(sizes, len(measures) if len(measures) > 1 else columns_for(sizes), top)
    figure, axes = make_sheet(max(wide, right + MARGIN), bottom + KEY_HEIGHT)
    write_title(axes, title, below)
    for (name, measure, at), corner in zip(maps, corners, strict=True):
        draw_value_map(axes, name, measure.values[at], measure.shade, measure.texts[at], corner)
    for measure, corner in zip(measures, corners, strict=False):
        draw_key(figure, measure.shade, Box(corner[0], bottom, KEY_WIDTH, KEY_HEIGHT), measure.name)
    return figure


def _measures(kinds: Sequence[HeadEffects]) -> list[Measure]:
    """Return the measures that are known of any kind."""
    found = [_effect("rise of the loss", [each.loss for each in kinds], "+z.3f")]
    if any(each.bleu is not None for each in kinds):
        found.append(_effect("fall of BLEU", [_like(each, each.bleu, "bleu") for each in kinds], "+z.2f"))
    by_kind = [
        each.entropies or HeadEntropies(each.kind, _like(each, None, ""), _like(each, None, "")) for each in kinds
    ]
    if any(each.entropies is not None for each in kinds):
        shares = [_like(each, entropies.share, "entropies") for each, entropies in zip(kinds, by_kind, strict=True)]
        texts = [[number(nats, ".2f") for nats in entropies.nats.flatten().tolist()] for entropies in by_kind]
        found.append(Measure(ENTROPY, SHARES, shares, texts))
    return found


def _effect(name: str, values: list[Float[np.ndarray, "_ _"]], form: str) -> Measure:
    texts = [[number(value, form) for value in each.flatten().tolist()] for each in values]
    return Measure(name, score_scale(*values), values, texts)


def _like(each: HeadEffects, values: Float[np.ndarray, "_ _"] | None, name: str) -> Float[np.ndarray, "_ _"]:
    """Return nothing for each head where nothing is known, and reject what has another size."""
    if values is None:
        return np.full_like(each.loss, np.nan)
    if each.loss.shape != values.shape:
        raise ValueError(f"loss and {name} must have the same size, got {each.loss.shape} and {values.shape}")
    return values


def _with_key(size: tuple[float, float]) -> tuple[float, float]:
    return max(size[0], KEY_ROOM), size[1]


def report_figure(report: "HeadReport") -> Figure:
    """Draw what is lost without each head, and beside it how spread out its attention is."""
    kinds = dict.fromkeys(head.kind for head in report.heads)
    title = f"What each head does on {report.n_pairs:,} pairs"
    return draw_importance_map(
        [_effects(kind, [head for head in report.heads if head.kind == kind]) for kind in kinds], title
    )


def _effects(kind: str, heads: list["HeadSummary"]) -> HeadEffects:
    """Set heads of one kind in rows of one layer."""
    rows = [
        sorted((each for each in heads if each.layer == layer), key=lambda each: each.head) for layer in _layers(heads)
    ]

    def table(value: Callable[["HeadSummary"], float | None]) -> Float[np.ndarray, "L H"]:
        return np.array([[value(head) for head in row] for row in rows], dtype=np.float64)

    bleu = None if heads[0].bleu is None else table(lambda head: head.bleu)
    entropies = HeadEntropies(kind, table(lambda head: head.habits.entropy), table(lambda head: head.habits.spread))
    return HeadEffects(kind, table(lambda head: head.loss), bleu, entropies)


def _layers(heads: list["HeadSummary"]) -> list[int]:
    return sorted({head.layer for head in heads})
