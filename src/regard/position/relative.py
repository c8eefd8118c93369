"""Schemes of distances, by biases and rotations: ALiBi, T5, Shaw, difference, rotary."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.config import choose
from regard.position.absolute import check_base, frequencies
from regard.position.contract import OffsetBias, Position, check, check_both, offsets
from regard.shapes import Float, Int


class ALiBi(Position):
    """Add `−m_h |l − r|` to the score, each head with its own slope m_h (Press et al. 2022, arXiv:2108.12409).

    No parameters. Slopes are `2^(−8h/H)`; for a number of heads that is not a power of two, the paper's interpolation.
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

    def offset_bias(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> OffsetBias:
        check_both(q_positions, k_positions)
        return OffsetBias(q_positions, k_positions, slopes=self.slopes)


def head_slopes(n_heads: int) -> list[float]:
    """Return a geometric sequence of slopes, filled up with every other slope of the next power of two."""
    if n_heads < 1:
        raise ValueError(f"n_heads must be 1 or more, got {n_heads}")
    power = 2 ** math.floor(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]


BOTH_WAYS = {"both": True, "past": False}


class T5(Position):
    """Add a learned number for each head and bucket of r − l to the score (Raffel et al. 2020, arXiv:1910.10683).

    Near distances have a bucket each, farther ones share logarithmically wider buckets, and beyond `max_distance` all
    share the last. `sees="past"` gives a decoder all buckets for the past. `n_buckets · n_heads` parameters.
    """

    def __init__(self, n_heads: int, n_buckets: int = 32, max_distance: int = 128, sees: str = "both"):
        super().__init__()
        self.both_ways = choose(BOTH_WAYS, sees, "direction")
        self.n_buckets = n_buckets
        self.max_distance = max_distance
        if self.n_per_direction() < 2 or (n_buckets % 2 and self.both_ways):
            raise ValueError(f"n_buckets must be even and give each direction 2 or more, got {n_buckets}")
        if max_distance <= self.n_per_direction() // 2:
            raise ValueError(
                f"max_distance must exceed the {self.n_per_direction() // 2} near buckets, got {max_distance}"
            )
        self.table: Float[Tensor, "buckets H"] = nn.Parameter(torch.randn(n_buckets, n_heads) * 0.1)

    def n_per_direction(self) -> int:
        """Return the number of buckets for each direction."""
        return self.n_buckets // 2 if self.both_ways else self.n_buckets

    def buckets(self, offset: Int[Tensor, "*B"]) -> Int[Tensor, "*B"]:
        """Return the bucket of each offset r − l."""
        n = self.n_per_direction()
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

    def offset_bias(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> OffsetBias:
        check_both(q_positions, k_positions)
        entries = self.buckets(torch.arange(-self.max_distance, self.max_distance + 1, device=q.device))
        return OffsetBias(q_positions, k_positions, self.table[entries].T[None, :, None])  # (1, H, 1, W)


class Shaw(Position):
    """Add a learned vector a(r − l) to the key, and one to the value if asked, for the query at l and the key at r.

    Shaw et al. 2018, arXiv:1803.02155. The score gains `scale · q·a_K`, the output gains `Σ α a_V`. Offsets beyond
    `max_distance` share the last vector. Each query is multiplied with the 2m + 1 vectors once, and the products are
    gathered for the keys: Θ(Q m E + QK), not Θ(QKE).
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
        products = self._products(q)
        rows = self.rows(q_positions, k_positions)[:, None]
        return products.gather(-1, rows.expand(*products.shape[:3], -1))

    def offset_bias(
        self, q: Float[Tensor, "B H Q E"], q_positions: Int[Tensor, "#B Q"], k_positions: Int[Tensor, "#B K"]
    ) -> OffsetBias:
        check_both(q_positions, k_positions)
        return OffsetBias(q_positions, k_positions, self._products(q))

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
        """Return the row of the table for each pair."""
        m = self.max_distance
        return offsets(q_positions, k_positions).clamp(-m, m) + m

    def _products(self, q: Tensor) -> Tensor:
        return q @ self.keys.to(q.dtype).T * self.scale  # (B, H, Q, R)


class Difference(Position):
    """Add `RE(l, r) = PE(l − r)` to the key at r for the query at l: the score gains `scale · q·PE(l − r)`.

    PE is one of the absolute codes: `sinusoidal`, `half_wave` up to `max_len`, or `index`. Since `sin(a − b)`,
    `cos(a − b)` and `a − b` are sums of products of functions of a and of b, the term is a dot product of a function of
    the query and l with a code of r: Θ(QKE) time and no (Q, K, E) tensor. No parameters.
    """

    def __init__(
        self,
        d_head: int,
        base: float = 10000.0,
        scale: float | None = None,
        code: str = "sinusoidal",
        max_len: int = 1024,
    ):
        super().__init__()
        if code in NO_DIFFERENCES:
            raise ValueError(f"a difference may be negative, and code {code!r} {NO_DIFFERENCES[code]}")
        self.waves = choose({"sinusoidal": True, "half_wave": True, "index": False}, code, "code")
        if max_len < 1:
            raise ValueError(f"max_len must be 1 or more positions, got {max_len}")
        self.base = check_base(base)
        self.limit = max_len if code == "half_wave" else None
        self.scale = d_head**-0.5 if scale is None else scale

    def code(self, differences: Int[Tensor, "*B"], width: int) -> Float[Tensor, "*B E"]:
        """Return RE for differences l − r of either sign: the definition that `bias` must agree with."""
        if not self.waves:
            return differences[..., None].to(torch.float64).expand(*differences.shape, width)
        angles = self._angles(differences, width)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., :width]

    def bias(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        q_positions: Int[Tensor, "#B Q"],
        k_positions: Int[Tensor, "#B K"],
    ) -> Float[Tensor, "B H Q K"]:
        check(q_positions, self.limit, "q_positions")
        check(k_positions, self.limit, "k_positions")
        factors = self._factors(q, q_positions)  # (B, H, Q, C)
        codes = self._key_codes(k_positions, q.shape[-1]).to(factors.dtype)  # (#B, K, C)
        return (factors @ codes.transpose(-1, -2)[:, None]).to(q.dtype) * self.scale

    def _factors(self, q: Tensor, positions: Tensor) -> Tensor:
        """Return the factors of each part of the code of r in `q·PE(l − r)`."""
        if not self.waves:
            total = q.double().sum(dim=-1)  # l and r may be far and their difference small
            return torch.stack([total * positions[:, None], -total], dim=-1)
        exact = torch.promote_types(q.dtype, torch.float32)
        odd = q.shape[-1] % 2
        q_sin, q_cos = torch.nn.functional.pad(q.to(exact), (0, odd)).unflatten(-1, (-1, 2)).unbind(-1)
        angles = self._angles(positions, q.shape[-1])[:, None]
        sin, cos = angles.sin().to(exact), angles.cos().to(exact)
        return torch.stack([q_sin * sin + q_cos * cos, q_cos * sin - q_sin * cos], dim=-1).flatten(-2)

    def _key_codes(self, positions: Tensor, width: int) -> Tensor:
        if not self.waves:
            return torch.stack([torch.ones_like(positions), positions], dim=-1).to(torch.float64)
        angles = self._angles(positions, width)
        return torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)

    def _angles(self, positions: Tensor, width: int) -> Tensor:
        omega = frequencies(width, self.base, positions.device)
        if self.limit is not None:
            omega = torch.full_like(omega, math.pi / self.limit)
        return positions[..., None].to(torch.float64) * omega


# Absolute codes that a difference cannot have, and why.
NO_DIFFERENCES = {
    "learned": "has no row for it: use position 'shaw', a learned table of differences",
    "normalised": "divides by the length of the sentence, which a difference does not know",
}


class Rotary(Position):
    """Rotate each pair of features of q and k by the angle `p · base^(−2i/E)` (Su et al. 2021, arXiv:2104.09864).

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
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
        return torch.cat([rotated.to(x.dtype), x[..., even:]], dim=-1)
