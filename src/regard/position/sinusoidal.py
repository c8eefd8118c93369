"""Sines and cosines of geometrically spaced wavelengths."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute


class Sinusoidal(Absolute):
    """Codes position p by `sin(p ω_i), cos(p ω_i)` in turn, `ω_i = base^(−2i/width)` (arXiv:1706.03762, section 3.5).

    No parameters, no largest position. A step of k is one rotation in each pair of features, wherever it starts (S6.4).
    """

    def __init__(self, width: int, base: float = 10000.0, join: str = "add"):
        super().__init__(width, join)
        self.base = check_base(base)

    def codes(self, positions: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return sinusoids(positions, self.width, self.base)


def check_base(base: float) -> float:
    """Gives the base of the wavelengths back, or raises ValueError where they would not grow."""
    if base <= 1.0:
        raise ValueError(f"base must be larger than 1, got {base}")
    return base


def frequencies(width: int, base: float, device: torch.device | None = None) -> Float[Tensor, " pairs"]:
    """Gives `ω_i = base^(−2i/width)` for each pair of features; an odd width has a last sine without its cosine."""
    return check_base(base) ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)


def sinusoids(positions: Int[Tensor, "*B"], width: int, base: float) -> Float[Tensor, "*B D"]:
    """Gives sines and cosines interleaved. In float64: at position 10⁶ a float32 angle is off by a twentieth."""
    angles = positions[..., None].to(torch.float64) * frequencies(width, base, positions.device)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)  # (*B, pairs, 2)
    return pairs.flatten(-2)[..., :width]


def shift_matrix(steps: int, width: int, base: float) -> Float[Tensor, "D D"]:
    """Gives M with `M PE(p) = PE(p + steps)` for every p: each pair of features turns by `ω_i · steps` (S6.4)."""
    if width % 2:
        raise ValueError(f"width must be even, so that each sine has its cosine, got {width}")
    angles = frequencies(width, base) * steps
    cos, sin = angles.cos(), angles.sin()
    return torch.block_diag(*torch.stack([cos, sin, -sin, cos], dim=-1).view(-1, 2, 2))
