"""How spread out each head looks."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from regard.plot.figure import in_style
from regard.plot.shade import KEY_HEIGHT, NOTHING, Shade, draw_key
from regard.plot.sheet import MARGIN, Box, make_sheet, title_size, write_title
from regard.plot.value_map import arrange, columns_for, draw_value_map, map_size

BELOW = "in each cell the mean entropy of a head's rows in nats"
KEY = "entropy as a share of the largest, the logarithm of the number of keys"
SHARES = Shade(mpl.colormaps["Blues"].with_extremes(bad=NOTHING), Normalize(0.0, 1.0))  # from one key to all alike


@dataclass(frozen=True, eq=False)
class HeadEntropies:
    """The mean entropy of each head of one kind of attention, in nats and as a share of the largest possible."""

    kind: str
    nats: Float[np.ndarray, "L H"]
    share: Float[np.ndarray, "_ _"]


@in_style
def draw_entropy_map(kinds: Sequence[HeadEntropies], title: str = "How spread out each head looks") -> Figure:
    """Draws a map for each kind of attention, from white (one key) to dark (all keys alike)."""
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
