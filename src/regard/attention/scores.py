"""The scores of the table: dot, scaled dot, bilinear, Gaussian, additive."""

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import ops
from regard.attention.blockwise import AdditiveBlocks
from regard.attention.contract import Attention, check, check_parameters, same_width
from regard.attention.sdpa import fused_attention, kernel_name
from regard.config import choose
from regard.mask import Mask
from regard.position.contract import OffsetBias, Position
from regard.shapes import Float, Int


class FusedAttention(Attention):
    """Score by a dot product of mapped queries and keys, for which there are fused kernels. Θ(QKE) time."""

    @abstractmethod
    def project(self, q: Tensor, k: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return queries and keys whose dot products, times the scale, give the weights; refuse sizes that do not fit.

        The features are those of `key_features`, where the caller has them.
        """

    def scale(self, width: int) -> float:
        """Return the factor for queries and keys of this width."""
        return 1.0

    def needs_double(self, q: Tensor, k: Tensor) -> bool:
        """Return whether float32 would lose digits that the definition has."""
        return False

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
        if self.needs_double(q, k):
            return self.forward(q.double(), k.double(), v.double(), mask, bias).to(v.dtype)
        scale = self.scale(q.shape[-1])
        q, k = self.project(q, k, features)
        return fused_attention(q, k, v, mask, bias, scale, self.current_dropout())

    def kernel(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | OffsetBias | None = None
    ) -> str:
        check(q, k, v, mask, bias)
        if self.needs_double(q, k):
            q, k, v = q.double(), k.double(), v.double()
        scale = self.scale(q.shape[-1])
        q, k = self.project(q, k, None)
        return kernel_name(q, k, v, mask, bias, scale, self.current_dropout())


class DotProduct(FusedAttention):
    """Score by `scale · qᵀk`, the scale given by a subclass."""

    def __init__(self, dropout: float = 0.0):
        super().__init__(dropout)

    @abstractmethod
    def scale(self, width: int) -> float: ...

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = self.project(q, k, None)
        return torch.einsum("bhqe,bhke->bhqk", q * self.scale(q.shape[-1]), k)

    def project(self, q: Tensor, k: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        same_width(q, k, "a dot product")
        return q, k

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


class Dot(DotProduct):
    """Score by `qᵀk` (Luong et al. 2015, arXiv:1508.04025). Its variance grows with the width: see `regard scores`."""

    def scale(self, width: int) -> float:
        return 1.0


class ScaledDot(DotProduct):
    """Score by `qᵀk / √E` (Vaswani et al. 2017, arXiv:1706.03762): unit-variance inputs give scores of variance 1."""

    def scale(self, width: int) -> float:
        return width**-0.5


class Bilinear(FusedAttention):
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

    def project(self, q: Tensor, k: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        check_parameters(q, k, *self.w.shape)
        if features is not None:
            return q, features
        return torch.einsum("bhqe,hef->bhqf", q, self.w.to(q.dtype)), k

    def key_features(self, k: Tensor) -> Tensor:
        return torch.einsum("bhkf,hef->bhke", k, self.w.to(k.dtype))


# float16 ends at 65504 and ‖k‖²/2 need not; a power of two costs no digits.
UNIT = 256.0
# ‖q‖² or ‖k‖², from the first key on, beyond which the rounding of float32 (6e-8 of it) would be seen in the weights.
LONG = 512.0
LEARNED = {"fixed": False, "learned": True}


class Gaussian(FusedAttention):
    """Score by `−‖(q − k) w‖² / 2` with one w for each head (Nadaraya 1964, Watson 1964).

    `−‖q − k‖²/2 = q·k − ‖k‖²/2 − ‖q‖²/2`, and the last term is the same for all keys of a row, so the softmax cancels
    it. The fast path therefore is a dot product with `‖k‖²/2` in a few extra columns: Θ(QKE) time, linear memory. Where
    data are spread, these terms are large and their difference is not: float32 would leave few of its digits, so such
    data take float64, half as fast on a CPU and without a fused kernel on a GPU.
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

    def project(self, q: Tensor, k: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        same_width(q, k, "the Gaussian kernel")
        return self._query_features(q, k), self.key_features(k) if features is None else features

    def needs_double(self, q: Tensor, k: Tensor) -> bool:
        if q.dtype != torch.float32 or 0 in {q.numel(), k.numel()} or torch.is_autocast_enabled(q.device.type):
            return False
        if q.is_cuda and torch.cuda.is_current_stream_capturing():
            return True  # the data cannot be looked at, and a graph must be right for any
        with torch.no_grad():
            longest = max(self._scaled(self._relative_to_first_key(x, k)).square().sum(-1).amax() for x in (q, k))
        return bool(longest > LONG)

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


class Additive(Attention):
    """Score by `w_vᵀ tanh(W_q q + W_k k)` (Bahdanau et al. 2015, arXiv:1409.0473), no bias, own weights for each head.

    Queries and keys may have different widths. Θ(QKF) time for F hidden units; the fast path works in blocks and keeps
    Θ((Q + K) F) memory, where the plain formula needs Θ(QKF). A GPU has a kernel for few queries, as in decoding token
    by token, and one for many, which in half precision takes the GPU's approximate tanh unless `exact` is set.
    """

    def __init__(
        self,
        n_heads: int,
        d_query: int,
        d_key: int,
        hidden: int | None = None,
        dropout: float = 0.0,
        exact: bool = False,
    ):
        super().__init__(dropout)
        self.exact = exact
        hidden = d_query if hidden is None else hidden
        if hidden < 1:
            raise ValueError(f"hidden must be 1 or more units, got {hidden}")
        self.w_q: Float[Tensor, "H E F"] = nn.Parameter(torch.randn(n_heads, d_query, hidden) * d_query**-0.5)
        self.w_k: Float[Tensor, "H E2 F"] = nn.Parameter(torch.randn(n_heads, d_key, hidden) * d_key**-0.5)
        self.w_v: Float[Tensor, "H F"] = nn.Parameter(torch.randn(n_heads, hidden) * hidden**-0.5)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        f_q, f_k = self._query_features(q, k), self.key_features(k)
        hidden = torch.tanh(f_q[:, :, :, None] + f_k[:, :, None])  # (B, H, Q, K, F): what the fast path never builds
        return torch.einsum("bhqkf,hf->bhqk", hidden, self.w_v.to(hidden.dtype))

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
        f_q = self._query_features(q, k)
        f_k = self.key_features(k) if features is None else features
        if ops.additive_few_fits(q, k, mask, bias, self.current_dropout()):
            return ops.additive_few(f_q, f_k, self.w_v, v, mask)
        if ops.additive_many_fits(q, k, v, bias):
            return ops.additive_many(f_q, f_k, self.w_v, v, mask, self.current_dropout(), self.exact)
        return AdditiveBlocks.apply(f_q, f_k, self.w_v.to(f_q.dtype), v, bias, mask, self.current_dropout())

    def key_features(self, k: Tensor) -> Tensor:
        return torch.einsum("bhke,hef->bhkf", k, self.w_k.to(k.dtype))

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        if ops.additive_few_fits(q, k, mask, bias, self.current_dropout()):
            return "few"
        return "fused" if ops.additive_many_fits(q, k, v, bias) else "blocks"

    def _query_features(self, q: Tensor, k: Tensor) -> Tensor:
        check_parameters(q, k, len(self.w_v), self.w_q.shape[1], self.w_k.shape[1])
        return torch.einsum("bhqe,hef->bhqf", q, self.w_q.to(q.dtype))
