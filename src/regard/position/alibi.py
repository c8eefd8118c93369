"""A penalty on the score that grows with distance."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.by_offset import ByOffset
from regard.position.contract import Position
from regard.position.relative import check_both, offsets


class ALiBi(Position):
    """Adds `−m_h |l − r|` to the score, each head with its own slope m_h (Press et al. 2022, arXiv:2108.12409).

    No parameters. Slopes are `2^(−8h/H)`; for a number of heads that is no power of two, the paper's interpolation.
    """

    slopes: Float[Tensor, " H"]

    def __init__(self, n_heads: int):
        super().__init__()
        self.register_buffer("slopes", torch.tensor(head_slopes(n_heads), dtype=torch.float64), persistent=False)

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "#B H Q K"]:
        distance = offsets(q_positions, k_positions).abs()[:, None]
        return -(distance * self.slopes[:, None, None]).to(q.dtype)

    def by_offset(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> ByOffset:
        check_both(q_positions, k_positions)
        return ByOffset(q_positions, k_positions, slopes=self.slopes)


def head_slopes(n_heads: int) -> list[float]:
    """Gives a geometric sequence of slopes, filled up with every other slope of the next power of two."""
    if n_heads < 1:
        raise ValueError(f"n_heads must be 1 or more, got {n_heads}")
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]
