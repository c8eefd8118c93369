"""Attention by a learned bilinear form."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.contract import Attention, check, check_parameters
from regard.attention.fused import fused_attention, prepare
from regard.mask import Mask


class Bilinear(Attention):
    """Scores by `qᵀWk` with one W for each head (Luong et al. 2015, arXiv:1508.04025).

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
        return fused_attention(q, k, v, mask, bias, 1.0, self.dropout_now())

    def key_features(self, k: Tensor) -> Tensor:
        return torch.einsum("bhkf,hef->bhke", k, self.w.to(k.dtype))

    def kernel(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | None = None) -> str:
        check(q, k, v, mask, bias)
        check_parameters(q, k, *self.w.shape)
        return prepare(self._mapped(q), k, v, mask, bias).kernel(self.dropout_now(), 1.0)

    def _mapped(self, q: Tensor) -> Tensor:
        return torch.einsum("bhqe,hef->bhqf", q, self.w.to(q.dtype))
