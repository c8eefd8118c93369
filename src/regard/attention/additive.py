"""Additive attention: a one-layer network scores each pair of query and key."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard import ops
from regard.attention.blockwise import AdditiveBlocks
from regard.attention.contract import Attention, check, check_parameters
from regard.mask import Mask


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
