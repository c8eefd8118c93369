"""Dot, scaled dot, bilinear, Gaussian."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard import ops
from regard.attention.contract import Attention, check, check_parameters, same_width
from regard.attention.sdpa import fused_attention, kernel_name
from regard.config import choose
from regard.mask import Mask
from regard.position.contract import OffsetBias, Position


class DotProduct(Attention):
    """Score by `scale · qᵀk`, the scale given by a subclass. Θ(QKE) time."""

    def __init__(self, dropout: float = 0.0):
        super().__init__(dropout)

    @abstractmethod
    def scale(self, width: int) -> float:
        """Return the factor for queries and keys of this width."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        same_width(q, k, "a dot product")
        return torch.einsum("bhqe,bhke->bhqk", q * self.scale(q.shape[-1]), k)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask = Mask(),
        bias: Tensor | OffsetBias | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        check(q, k, v, mask, bias)
        same_width(q, k, "a dot product")
        return fused_attention(q, k, v, mask, bias, self.scale(q.shape[-1]), self.current_dropout())

    def position_bias(
        self,
        position: Position,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Tensor | OffsetBias | None:
        by_offset = position.offset_bias(q, q_positions, k_positions) if ops.relative_attention_fits(q, k, v) else None
        return position.bias(q, k, q_positions, k_positions) if by_offset is None else by_offset

    def kernel(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | OffsetBias | None = None
    ) -> str:
        check(q, k, v, mask, bias)
        return kernel_name(q, k, v, mask, bias, self.scale(q.shape[-1]), self.current_dropout())


class Dot(DotProduct):
    """Score by `qᵀk` (Luong et al. 2015, arXiv:1508.04025). Its variance grows with the width: see `regard scores`."""

    def scale(self, width: int) -> float:
        return 1.0


class ScaledDot(DotProduct):
    """Score by `qᵀk / √E` (Vaswani et al. 2017, arXiv:1706.03762): unit-variance inputs give scores of variance 1."""

    def scale(self, width: int) -> float:
        return width**-0.5


class Bilinear(Attention):
    """Score by `qᵀWk` with one W for each head (Luong et al. 2015, arXiv:1508.04025).

    Queries and keys may have different widths. The fast path maps the queries by W once, Θ(QE²), or the keys, and is
    a dot product from there on.
    """

    def __init__(self, n_heads: int, d_query: int, d_key: int, dropout: float = 0.0):
        super().__init__(dropout)
        # Var(qᵀWk) = d_query · d_key · Var(W) for unit-variance inputs: this start gives scores of variance 1.
        std = (d_query * d_key) ** -0.5
        self.w: Float[Tensor, "H E E2"] = nn.Parameter(torch.randn(n_heads, d_query, d_key) * std)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        check_parameters(q, k, *self.w.shape)
        return torch.einsum("bhqe,hef,bhkf->bhqk", q, self.w.to(q.dtype), k)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask = Mask(),
        bias: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        check(q, k, v, mask, bias)
        check_parameters(q, k, *self.w.shape)
        q, k = (self._mapped(q), k) if features is None else (q, features)
        return fused_attention(q, k, v, mask, bias, 1.0, self.current_dropout())

    def key_features(self, k: Tensor) -> Tensor:
        return torch.einsum("bhkf,hef->bhke", k, self.w.to(k.dtype))

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        check(q, k, v, mask, bias)
        check_parameters(q, k, *self.w.shape)
        return kernel_name(self._mapped(q), k, v, mask, bias, 1.0, self.current_dropout())

    def _mapped(self, q: Tensor) -> Tensor:
        return torch.einsum("bhqe,hef->bhqf", q, self.w.to(q.dtype))


# float16 ends at 65504 and ‖k‖²/2 need not; a power of two costs no digits.
UNIT = 256.0
LEARNED = {"fixed": False, "learned": True}


class Gaussian(Attention):
    """Score by `−‖(q − k) w‖² / 2` with one w for each head (Nadaraya 1964, Watson 1964).

    `−‖q − k‖²/2 = q·k − ‖k‖²/2 − ‖q‖²/2`, and the last term is the same for all keys of a row, so the softmax cancels
    it. The fast path therefore is a dot product with `‖k‖²/2` in a few extra columns: Θ(QKE) time, linear memory.
    """

    def __init__(self, n_heads: int = 1, bandwidth: str = "learned", dropout: float = 0.0):
        super().__init__(dropout)
        learned = choose(LEARNED, bandwidth, "bandwidth")
        self.w: Float[Tensor, " H"] = nn.Parameter(torch.ones(n_heads), requires_grad=learned)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        same_width(q, k, "the Gaussian kernel")
        q, k = self._scaled(q), self._scaled(k)
        squares = (q[:, :, :, None] - k[:, :, None]).square()  # (B, H, Q, K, E): the fast path never builds it
        return -squares.sum(dim=-1) / 2

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask = Mask(),
        bias: Tensor | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        check(q, k, v, mask, bias)
        same_width(q, k, "the Gaussian kernel")
        features = self.key_features(k) if features is None else features
        return fused_attention(self._query_features(q, k), features, v, mask, bias, 1.0, self.current_dropout())

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        check(q, k, v, mask, bias)
        same_width(q, k, "the Gaussian kernel")
        q, k = self._query_features(q, k), self.key_features(k)
        return kernel_name(q, k, v, mask, bias, 1.0, self.current_dropout())

    def _scaled(self, x: Tensor) -> Tensor:
        if len(self.w) not in {1, x.shape[1]}:
            raise ValueError(f"this attention was built for {len(self.w)} heads, got {x.shape[1]}")
        return x * self.w.to(x.dtype)[:, None, None]

    def key_features(self, k: Tensor) -> Tensor:
        """Return k′, which with the queries' q′ has `q′·k′ = q·k − ‖k‖²/2`, padded to a width divisible by eight.

        ‖k‖² is larger than the differences that matter, so in bfloat16 one column would round them away. Three columns
        (the rounded value, what is left, what is left then) carry it to the precision of float32.
        """
        exact = torch.promote_types(k.dtype, torch.float32)
        k = self._scaled(self._relative_to_first_key(k, k))
        rest = -k.to(exact).square().sum(dim=-1, keepdim=True) / 2
        columns = []
        for _ in range(3):
            columns.append((rest / UNIT).to(k.dtype))
            rest = rest - UNIT * columns[-1].to(exact)
        return F.pad(torch.cat([k, *columns], -1), (0, 5))

    def _query_features(self, q: Tensor, k: Tensor) -> Tensor:
        q = self._scaled(self._relative_to_first_key(q, k))
        units = torch.full_like(q[..., :1], UNIT).expand(*q.shape[:-1], 3)
        return F.pad(torch.cat([q, units], -1), (0, 5))

    def _relative_to_first_key(self, x: Tensor, k: Tensor) -> Tensor:
        """Subtract the first key, so that data far from 0 (years, say) keep their digits: only q − k counts.

        bfloat16 has so few digits that rounding the differences would cost more than it saves.
        """
        return x if k.dtype == torch.bfloat16 or k.shape[2] == 0 else x - k[:, :, :1].detach()
