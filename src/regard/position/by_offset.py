"""A bias that is known by the offset from query to key."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ByOffset:
    """`table[…, clip(r − l, −reach, reach) + reach] − slope · |r − l|` for the query at l and the key at r.

    One entry for each offset up to the reach, of all queries or of each its own; those beyond take the last. Either
    part may be absent. Θ(reach) memory where the bias itself is Θ(QK).
    """

    q_positions: Int[Tensor, "#B Q"]
    k_positions: Int[Tensor, "#B K"]
    table: Float[Tensor, "#B H #Q W"] | None = None
    slopes: Float[Tensor, " H"] | None = None

    @property
    def reach(self) -> int:
        """Gives the offset from which on all take the last entry."""
        return 0 if self.table is None else (self.table.shape[-1] - 1) // 2

    def written_out(self, dtype: torch.dtype) -> Float[Tensor, "#B H Q K"]:
        """Gives the bias of every pair: the definition."""
        offset = (self.k_positions[:, None, :] - self.q_positions[:, :, None])[:, None]  # (#B, 1, Q, K)
        parts = []
        if self.table is not None:
            rows = offset.clamp(-self.reach, self.reach) + self.reach
            B = max(len(offset), len(self.table))
            full = (B, self.table.shape[1], *offset.shape[2:])
            table = self.table.expand(B, -1, offset.shape[2], -1)
            parts.append(table.gather(-1, rows.expand(full)).to(dtype))
        if self.slopes is not None:
            parts.append(-(offset.abs() * self.slopes[:, None, None]).to(dtype))
        return sum(parts[1:], parts[0])
