"""Rotary positions: queries and keys are turned, so that scores depend on distance."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.contract import Position, check
from regard.position.sinusoidal import check_base, frequencies


class Rotary(Position):
    """Turns each pair of features of q and k by the angle `p · base^(−2i/E)` (Su et al. 2021, arXiv:2104.09864).

    `(R_l q)·(R_r k) = q·(R_{r−l} k)`: the score depends on positions through their difference alone. No parameters, no
    largest position. The last feature of an odd width stays as it is.
    """

    def __init__(self, base: float = 10000.0):
        super().__init__()
        self.base = check_base(base)

    def rotate(self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, "#B T"]) -> Float[Tensor, "B H T E"]:
        check(positions)
        even = x.shape[-1] // 2 * 2
        angles = positions[:, None, :, None].to(torch.float64) * frequencies(even, self.base, positions.device)
        exact = torch.promote_types(x.dtype, torch.float32)
        sin, cos = angles.sin().to(exact), angles.cos().to(exact)
        a, b = x[..., :even].to(exact).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        return torch.cat([turned.to(x.dtype), x[..., even:]], dim=-1)
