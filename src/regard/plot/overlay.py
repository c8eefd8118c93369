"""Weights laid over the picture that was looked at."""

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from torch import Tensor

from regard.plot.figure import COLOURS

INK = COLOURS[1]
STRONGEST = 0.85  # how much of the picture the largest weight covers


def draw_over(
    axes: Axes,
    picture: Float[Tensor, "rows columns"],
    shades: tuple[float, float],
    weights: Float[Tensor, "r c"] | None = None,
    largest: float = 1.0,
) -> None:
    """Draws a picture from white to black and, where there are weights, each patch under a veil as thick as its own."""
    rows, columns = picture.shape
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    axes.imshow(picture.numpy(), cmap="Greys", vmin=shades[0], vmax=shades[1], interpolation="nearest", extent=extent)
    if weights is not None:
        axes.imshow(veil(weights, largest), interpolation="nearest", extent=extent)
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_linewidth(0.4)


def veil(weights: Float[Tensor, "r c"], largest: float) -> Float[np.ndarray, "r c 4"]:
    """Gives the colour of each patch, clear where its weight is 0."""
    thickness = (weights / largest).clamp(0, 1).numpy() * STRONGEST
    colour = np.broadcast_to(np.array(to_rgb(INK)), (*thickness.shape, 3))
    return np.concatenate([colour, thickness[..., None]], axis=-1)
