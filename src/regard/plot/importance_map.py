"""How much each head matters: what is lost when it is switched off."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.plot.entropy_map import SHARES, HeadEntropies
from regard.plot.figure import in_style
from regard.plot.matrix import number
from regard.plot.shade import KEY_HEIGHT, Shade, draw_key, score_shade
from regard.plot.sheet import MARGIN, Box, make_sheet, title_size, write_title
from regard.plot.value_map import arrange, columns_for, draw_value_map, map_size

BELOW = "blue where the model needs a head, red where it is better without"
SPREAD = "; dark where a head looks at all keys alike"
ENTROPY = "entropy"
KEY_WIDTH = 1.5  # inches of the bar alone
KEY_ROOM = 3.0  # and with its meaning


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """What switching off each head of one kind of attention costs; NaN or no BLEU where it was not measured.

    How spread out the heads look stands beside it where it is given.
    """

    kind: str
    loss: Float[np.ndarray, "L H"]  # by how much the loss rises
    bleu: Float[np.ndarray, "_ _"] | None = None  # by how much BLEU falls
    entropies: HeadEntropies | None = None


@dataclass(frozen=True, eq=False)
class Measure:
    """One measure of all heads: for each kind what shades its map, and what stands in its cells."""

    name: str
    shade: Shade
    values: list[Float[np.ndarray, "_ _"]]
    texts: list[list[str]]


@in_style
def draw_importance_map(kinds: Sequence[HeadEffects], title: str = "How much each head matters") -> Figure:
    """Draws the rise of the loss for each kind of attention and, where known, the fall of BLEU and the entropy."""
    if not kinds:
        raise ValueError("a map of importance needs one kind of attention or more, got 0")
    measures = _measures(kinds)
    below = BELOW + SPREAD * (measures[-1].name == ENTROPY)
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
    """Gives the measures that are known of any kind."""
    found = [_effect("rise of the loss", [each.loss for each in kinds], "+z.3f")]
    if any(each.bleu is not None for each in kinds):
        found.append(_effect("fall of BLEU", [_like(each, each.bleu, "bleu") for each in kinds], "+z.2f"))
    looks = [each.entropies or HeadEntropies(each.kind, _like(each, None, ""), _like(each, None, "")) for each in kinds]
    if any(each.entropies is not None for each in kinds):
        shares = [_like(each, look.share, "entropies") for each, look in zip(kinds, looks, strict=True)]
        texts = [[number(nats, ".2f") for nats in look.nats.flatten().tolist()] for look in looks]
        found.append(Measure(ENTROPY, SHARES, shares, texts))
    return found


def _effect(name: str, values: list[Float[np.ndarray, "_ _"]], form: str) -> Measure:
    texts = [[number(value, form) for value in each.flatten().tolist()] for each in values]
    return Measure(name, score_shade(*values), values, texts)


def _like(each: HeadEffects, values: Float[np.ndarray, "_ _"] | None, name: str) -> Float[np.ndarray, "_ _"]:
    """Gives nothing for each head where nothing is known, and refuses what has another size."""
    if values is None:
        return np.full_like(each.loss, np.nan)
    if each.loss.shape != values.shape:
        raise ValueError(f"loss and {name} must have the same size, got {each.loss.shape} and {values.shape}")
    return values


def _with_key(size: tuple[float, float]) -> tuple[float, float]:
    return max(size[0], KEY_ROOM), size[1]
