"""How much each head matters: what is lost when it is switched off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.plot.figure import in_style
from regard.plot.matrix import number
from regard.plot.shade import KEY_HEIGHT, draw_key, score_shade
from regard.plot.sheet import MARGIN, Box, make_sheet, title_size, write_title
from regard.plot.value_map import arrange, columns_for, draw_value_map, map_size

BELOW = "what is lost when a head is switched off: blue where the model needs it, red where it is better without"
KEY_WIDTH = 1.5  # inches of the bar alone
KEY_ROOM = 3.0  # and with its meaning


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """What switching off each head of one kind of attention costs; NaN or no BLEU where it was not measured."""

    kind: str
    loss: Float[np.ndarray, "L H"]  # by how much the loss rises
    bleu: Float[np.ndarray, "_ _"] | None = None  # by how much BLEU falls


@in_style
def draw_importance_map(kinds: Sequence[HeadEffects], title: str = "How much each head matters") -> Figure:
    """Draws the rise of the loss for each kind of attention and, where it is known, the fall of BLEU beside it."""
    if not kinds:
        raise ValueError("a map of importance needs one kind of attention or more, got 0")
    columns = [("rise of the loss", [each.loss for each in kinds], "+z.3f")]
    if any(each.bleu is not None for each in kinds):
        columns.append(("fall of BLEU", [_bleu(each) for each in kinds], "+z.2f"))
    shades = [score_shade(*values) for _, values, _ in columns]
    names = [f"{each.kind}: {what}" for each in kinds for what, _, _ in columns]
    maps = [values[at] for at in range(len(kinds)) for _, values, _ in columns]
    wide, top = title_size(title, BELOW)
    sizes = [_with_key(map_size(name, values)) for name, values in zip(names, maps, strict=True)]
    corners, right, bottom = arrange(sizes, len(columns) if len(columns) > 1 else columns_for(sizes), top)
    figure, axes = make_sheet(max(wide, right + MARGIN), bottom + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    for at, (name, values, corner) in enumerate(zip(names, maps, corners, strict=True)):
        which = at % len(columns)
        texts = [number(value, columns[which][2]) for value in values.flatten().tolist()]
        draw_value_map(axes, name, values, shades[which], texts, corner)
    for shade, corner, (what, _, _) in zip(shades, corners, columns, strict=False):
        draw_key(figure, shade, Box(corner[0], bottom, KEY_WIDTH, KEY_HEIGHT), what)
    return figure


def _bleu(each: HeadEffects) -> Float[np.ndarray, "L H"]:
    if each.bleu is None:
        return np.full_like(each.loss, np.nan)
    if each.loss.shape != each.bleu.shape:
        raise ValueError(f"loss and bleu must have the same size, got {each.loss.shape} and {each.bleu.shape}")
    return each.bleu


def _with_key(size: tuple[float, float]) -> tuple[float, float]:
    return max(size[0], KEY_ROOM), size[1]
