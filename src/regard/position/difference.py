"""Relative codes that are the absolute code of the difference."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.contract import Position, check
from regard.position.sinusoidal import check_base, frequencies, sinusoids


class Difference(Position):
    """Adds `RE(l, r) = PE(l − r)` to the key at r for the query at l: the score gains `scale · q·PE(l − r)` (S5.3).

    PE is sinusoidal. Since `sin(a − b)` and `cos(a − b)` are sums of products of functions of a and of b, the term is a
    dot product of a query turned by l with a code of r: Θ(QKE) time and no (Q, K, E) tensor. No parameters.
    """

    def __init__(self, d_head: int, base: float = 10000.0, scale: float | None = None):
        super().__init__()
        self.base = check_base(base)
        self.scale = d_head**-0.5 if scale is None else scale

    def code(self, differences: Int[Tensor, "*B"], width: int) -> Float[Tensor, "*B E"]:
        """Gives RE for differences l − r of either sign: the definition that `bias` must agree with."""
        return sinusoids(differences, width, self.base)

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "B H Q K"]:
        check(q_positions, name="q_positions")
        check(k_positions, name="k_positions")
        turned = self._turned(q, q_positions)  # (B, H, Q, pairs, 2)
        angles = self._angles(k_positions, q.shape[-1])
        codes = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2).to(turned.dtype)  # (#B, K, 2 pairs)
        return (turned.flatten(-2) @ codes.transpose(-1, -2)[:, None]).to(q.dtype) * self.scale

    def _turned(self, q: Tensor, positions: Tensor) -> Tensor:
        """Gives the factors of cos(ωr) and of sin(ωr) in `q·PE(l − r)`, for each pair of features."""
        exact = torch.promote_types(q.dtype, torch.float32)
        odd = q.shape[-1] % 2
        q_sin, q_cos = torch.nn.functional.pad(q.to(exact), (0, odd)).unflatten(-1, (-1, 2)).unbind(-1)
        angles = self._angles(positions, q.shape[-1])[:, None]
        sin, cos = angles.sin().to(exact), angles.cos().to(exact)
        return torch.stack([q_sin * sin + q_cos * cos, q_cos * sin - q_sin * cos], dim=-1)

    def _angles(self, positions: Tensor, width: int) -> Tensor:
        return positions[..., None].to(torch.float64) * frequencies(width, self.base, positions.device)
