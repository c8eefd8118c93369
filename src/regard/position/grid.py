"""Positions on a grid: rows and columns of an image, frames of a video."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute
from regard.position.sinusoidal import sinusoids


class Grid(Absolute):
    """Codes a cell by the sinusoidal codes of its coordinates, side by side (after arXiv:2010.11929, D.4).

    The width is shared out evenly among the axes, earlier axes taking what is left over.
    """

    def __init__(self, width: int, n_axes: int, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        if width < n_axes:
            raise ValueError(f"width must have a feature for each of the {n_axes} axes, got {width}")
        self.n_axes = n_axes
        self.base = base

    def codes(self, positions: Int[Tensor, "B T A"]) -> Float[Tensor, "B T D"]:
        share, left = divmod(self.width, self.n_axes)
        widths = [share + (axis < left) for axis in range(self.n_axes)]
        return torch.cat([sinusoids(positions[..., axis], w, self.base) for axis, w in enumerate(widths)], dim=-1)
