"""Half a turn of the circle, spread over all positions."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute


class HalfWave(Absolute):
    """Codes position p by `sin(πp / L), cos(πp / L)` in turn with L = `max_len` (S5.1).

    Unique and bounded, and a step is a rotation; but neighbours in a long table are almost the same point.
    """

    def __init__(self, width: int, max_len: int = 1024, join: str = "add"):
        super().__init__(width, join, max_len)
        self.max_len = max_len

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        angles = positions.to(torch.float64) * (math.pi / self.max_len)
        pair = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (B, T, 2)
        return pair.repeat(1, 1, (self.width + 1) // 2)[..., : self.width]
