"""Attention by dot products, plain and scaled."""

from abc import abstractmethod

import torch
from torch import Tensor

from regard.attention.contract import Attention, check, same_width
from regard.attention.fused import fused_attention, is_relative, is_short, prepare
from regard.mask import Mask
from regard.position.by_offset import ByOffset


class DotProduct(Attention):
    """Scores by `scale · qᵀk`; what the scale is, a subclass says. Θ(QKE) time."""

    def __init__(self, dropout: float = 0.0):
        super().__init__(dropout)

    @abstractmethod
    def scale(self, width: int) -> float:
        """Gives the factor for queries and keys of this width."""

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        same_width(q, k, "a dot product")
        return torch.einsum("bhqe,bhke->bhqk", q * self.scale(q.shape[-1]), k)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Mask = Mask(),
        bias: Tensor | ByOffset | None = None,
        features: Tensor | None = None,
    ) -> Tensor:
        check(q, k, v, mask, None if isinstance(bias, ByOffset) else bias)
        same_width(q, k, "a dot product")
        return fused_attention(q, k, v, mask, bias, self.scale(q.shape[-1]), self.dropout_now())

    def takes_offsets(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask()) -> bool:
        return is_relative(q, k, v)

    def kernel(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask = Mask(), bias: Tensor | ByOffset | None = None
    ) -> str:
        if isinstance(bias, ByOffset):
            if is_relative(q, k, v):
                return "relative"
            bias = bias.written_out(q.dtype)
        check(q, k, v, mask, bias)
        if is_short(q, k, v, mask, bias, self.dropout_now()):
            return "short"
        return prepare(q, k, v, mask, bias).kernel(self.dropout_now(), self.scale(q.shape[-1]))


class Dot(DotProduct):
    """Scores by `qᵀk` (Luong et al. 2015, arXiv:1508.04025). Its variance grows with the width: see `regard scores`."""

    def scale(self, width: int) -> float:
        return 1.0


class ScaledDot(DotProduct):
    """Scores by `qᵀk / √E` (Vaswani et al. 2017, arXiv:1706.03762): unit-variance inputs give scores of variance 1."""

    def scale(self, width: int) -> float:
        return width**-0.5
