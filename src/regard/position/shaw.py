"""Learned relative keys and values."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.position.by_offset import ByOffset
from regard.position.contract import Position
from regard.position.relative import check_both, offsets


class Shaw(Position):
    """Adds a learned vector a(r − l) to the key, and one to the value if asked, for the query at l and the key at r.

    Shaw et al. 2018, arXiv:1803.02155. The score gains `scale · q·a_K`, the output gains `Σ α a_V`. Offsets beyond
    `max_distance` share the last vector. The query meets each of the 2m + 1 vectors once and the result is spread over
    the keys: Θ(Q m E + QK), not Θ(QKE).
    """

    def __init__(self, d_head: int, max_distance: int = 16, values: bool = False, scale: float | None = None):
        super().__init__()
        if max_distance < 1:
            raise ValueError(f"max_distance must be 1 or more, got {max_distance}")
        self.max_distance = max_distance
        self.scale = d_head**-0.5 if scale is None else scale
        size = (2 * max_distance + 1, d_head)
        self.keys: Float[Tensor, "R E"] = nn.Parameter(torch.randn(size) * d_head**-0.5)
        self.values: Float[Tensor, "R E"] | None = nn.Parameter(torch.randn(size) * d_head**-0.5) if values else None

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "B H Q K"]:
        met = self._met(q)
        rows = self.rows(q_positions, k_positions)[:, None]
        return met.gather(-1, rows.expand(*met.shape[:3], -1))

    def by_offset(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> ByOffset:
        check_both(q_positions, k_positions)
        return ByOffset(q_positions, k_positions, self._met(q))

    def pool(
        self,
        weights: Callable[[], Float[Tensor, "B H Q K"]],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "B H Q E"] | None:
        if self.values is None:
            return None
        mass = weights()
        rows = self.rows(q_positions, k_positions)[:, None].expand_as(mass)
        by_offset = mass.new_zeros(*mass.shape[:3], len(self.values)).scatter_add(-1, rows, mass)  # (B, H, Q, R)
        return by_offset @ self.values.to(mass.dtype)

    def rows(self, q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]) -> Int[Tensor, "#B Q K"]:
        """Gives the row of the table for each pair."""
        m = self.max_distance
        return offsets(q_positions, k_positions).clamp(-m, m) + m

    def _met(self, q: Tensor) -> Tensor:
        return q @ self.keys.to(q.dtype).T * self.scale  # (B, H, Q, R)
