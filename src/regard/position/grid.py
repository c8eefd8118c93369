"""Positions on a grid: rows and columns of an image, frames of a video."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute
from regard.position.sinusoidal import check_base, sinusoids


class Grid(Absolute):
    """Codes a cell by the sinusoidal codes of its coordinates, side by side (after arXiv:2010.11929, D.4).

    The width is shared out evenly among the axes in pairs of sine and cosine, earlier axes taking what is left over; an
    odd last feature goes to the last axis.
    """

    def __init__(self, width: int, n_axes: int, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        if width < n_axes:
            raise ValueError(f"width must have a feature for each of the {n_axes} axes, got {width}")
        self.n_axes = n_axes
        self.base = check_base(base)

    def places(self, n: int) -> Int[Tensor, "1 T A"]:
        """Gives the first n cells of the smallest square or cube that holds them, row by row."""
        side = next(side for side in range(1, n + 2) if side**self.n_axes >= n)
        strides = torch.tensor([side**axis for axis in reversed(range(self.n_axes))])
        return (torch.arange(n)[:, None] // strides % side)[None]

    def codes(self, positions: Int[Tensor, "B T A"]) -> Float[Tensor, "B T D"]:
        coded = [sinusoids(positions[..., axis], w, self.base) for axis, w in enumerate(self.widths())]
        return torch.cat(coded, dim=-1)

    def widths(self) -> list[int]:
        """Gives the number of features for each axis."""
        step = 2 if self.width >= 2 * self.n_axes else 1
        share, left = divmod(self.width // step, self.n_axes)
        widths = [step * (share + (axis < left)) for axis in range(self.n_axes)]
        widths[-1] += self.width - sum(widths)
        return widths
