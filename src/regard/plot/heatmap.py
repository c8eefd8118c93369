"""A matrix of weights, with words along its sides."""

from collections.abc import Sequence

from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor


def draw_weights(
    axes: Axes,
    weights: Float[Tensor, "Q K"],
    rows: Sequence[str] = (),
    columns: Sequence[str] = (),
    largest: float | None = None,
) -> None:
    """Draws each weight as a shade from white (0) to blue (`largest`, by default the largest there is)."""
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0.0, vmax=largest, aspect="auto", interpolation="nearest")
    axes.spines[:].set_visible(False)
    if columns:
        axes.set_xticks(range(len(columns)), columns)
    if rows:
        axes.set_yticks(range(len(rows)), rows)


def write_numbers(axes: Axes, weights: Float[Tensor, "Q K"]) -> None:
    """Writes each weight into its cell."""
    for i, row in enumerate(weights.tolist()):
        for j, weight in enumerate(row):
            colour = "white" if weight > 0.6 else "black"
            axes.text(j, i, f"{weight:.2f}", ha="center", va="center", color=colour, fontsize="small")
