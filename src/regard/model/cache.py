"""Keys and values that a decoder has already computed."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, eq=False)
class KeysValues:
    """Projected keys and values of some tokens, with their positions; attention looks at these."""

    k: Float[Tensor, "B H K E"]
    v: Float[Tensor, "B H K E"]
    positions: Int[Tensor, "#B K *axes"]

    def append(self, later: "KeysValues") -> "KeysValues":
        """Sets later tokens behind these."""
        k, v = torch.cat([self.k, later.k], dim=2), torch.cat([self.v, later.v], dim=2)
        return KeysValues(k, v, torch.cat([self.positions, later.positions], dim=1))

    def rows(self, index: Int[Tensor, " R"]) -> "KeysValues":
        """Takes some rows, in any order."""
        shared = self.positions.shape[0] == 1
        return KeysValues(self.k[index], self.v[index], self.positions if shared else self.positions[index])
