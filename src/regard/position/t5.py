"""A learned bias for each bucket of distances."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import choose
from regard.position.by_offset import ByOffset
from regard.position.contract import Position
from regard.position.relative import check_both, offsets

BOTH_WAYS = {"both": True, "past": False}


class T5(Position):
    """Adds a learned number for each head and bucket of r − l to the score (Raffel et al. 2020, arXiv:1910.10683).

    Near distances have a bucket each, farther ones share logarithmically wider buckets, and beyond `max_distance` all
    share the last. `sees="past"` gives a decoder all buckets for the past. `n_buckets · n_heads` parameters.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, sees: str = "both"):
        super().__init__()
        self.both_ways = choose(BOTH_WAYS, sees, "direction")
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        if self.one_way() < 2 or (n_buckets % 2 and self.both_ways):
            raise ValueError(f"n_buckets must be even and give each direction 2 or more, got {n_buckets}")
        if max_distance <= self.one_way() // 2:
            raise ValueError(f"max_distance must exceed the {self.one_way() // 2} near buckets, got {max_distance}")
        self.table: Float[Tensor, "buckets H"] = nn.Parameter(torch.randn(n_buckets, n_heads) * 0.1)

    def one_way(self) -> int:
        """Gives the number of buckets for each direction."""
        return self.n_buckets // 2 if self.both_ways else self.n_buckets

    def buckets(self, offset: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Gives the bucket of each offset r − l."""
        n = self.one_way()
        ahead = (offset > 0) * n if self.both_ways else 0
        distance = offset.abs() if self.both_ways else (-offset).clamp(min=0)
        near = n // 2
        growth = torch.log(distance.clamp(min=1).double() / near) / math.log(self.max_distance / near)
        # A distance on the very edge of a bucket belongs to it, whichever way its logarithm was rounded.
        far = (near + (growth * (n - near) + 1e-9).long()).clamp(max=n - 1)
        return torch.where(distance < near, distance, far) + ahead

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "#B H Q K"]:
        buckets = self.buckets(offsets(q_positions, k_positions))
        return self.table.to(q.dtype)[buckets].permute(0, 3, 1, 2)

    def by_offset(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> ByOffset:
        check_both(q_positions, k_positions)
        entries = self.buckets(torch.arange(-self.max_distance, self.max_distance + 1, device=q.device))
        return ByOffset(q_positions, k_positions, self.table[entries].T[None, :, None])  # (1, H, 1, W)
