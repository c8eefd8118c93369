"""Additive attention: a one-layer network scores each pair of query and key."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.blockwise import AdditiveBlocks
from regard.attention.contract import Attention, check, check_parameters
from regard.mask import Mask

# Queries that look at the same keys, each by its own program on a GPU, and keys whose weights one program holds.
FEW, SEEN_AT_ONCE = 16, 512
# Features of a value that the kernel for many queries holds in registers.
WIDEST = 256


class Additive(Attention):
    """Scores by `w_vᵀ tanh(W_q q + W_k k)` (Bahdanau et al. 2015, arXiv:1409.0473), no bias, own weights for each head.

    Queries and keys may have different widths. Θ(QKF) time for F hidden units; the fast path works in blocks and keeps
    Θ((Q + K) F) memory, where the plain formula needs Θ(QKF). Few queries on a GPU, as of a decoder that writes word by
    word, have a kernel of their own, and so have many. That one takes the GPU's approximate tanh in half precision,
    unless `exact` asks for the exact one.
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
        if is_few(q, k, mask, bias, self.current_dropout()):
            from regard.kernels.additive_short import additive_attention  # only there is Triton installed

            return additive_attention(f_q, f_k, self.w_v, v, mask.key_lengths)
        if is_many(q, k, v, bias):
            from regard.kernels.additive import additive_attention as attend

            hardware = f_q.dtype.itemsize == 2 and not self.exact
            return attend(f_q, f_k, self.w_v, v, mask, self.current_dropout(), hardware)
        return AdditiveBlocks.apply(f_q, f_k, self.w_v.to(f_q.dtype), v, bias, mask, self.current_dropout())

    def key_features(self, k: Tensor) -> Tensor:
        return torch.einsum("bhke,hef->bhkf", k, self.w_k.to(k.dtype))

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        if is_few(q, k, mask, bias, self.current_dropout()):
            return "few"
        return "fused" if is_many(q, k, v, bias) else "blocks"

    def _query_features(self, q: Tensor, k: Tensor) -> Tensor:
        check_parameters(q, k, len(self.w_v), self.w_q.shape[1], self.w_k.shape[1])
        return torch.einsum("bhqe,hef->bhqf", q, self.w_q.to(q.dtype))


def is_few(q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None, dropout: float) -> bool:
    """Tells whether our own kernel for few queries on a GPU takes this call."""
    if not q.is_cuda or bias is not None or dropout > 0.0 or q.dtype.itemsize > 4 or 0 in q.shape:
        return False
    if mask.query_lengths is not None or mask.causal or mask.window is not None or mask.allowed is not None:
        return False
    padded = mask.key_lengths is None or mask.key_lengths.dim() == 1
    return padded and q.shape[2] <= FEW and 0 < k.shape[2] <= SEEN_AT_ONCE


def is_many(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Tells whether our own kernel for many queries on a GPU takes this call.

    It adds up gradients in any order, so it stands back where only one order is wanted.
    """
    if not q.is_cuda or bias is not None or q.dtype.itemsize > 4 or torch.are_deterministic_algorithms_enabled():
        return False
    return min(q.shape[2], k.shape[2]) >= FEW and v.shape[3] <= WIDEST and 0 not in q.shape
