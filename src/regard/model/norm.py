"""Normalisations, and the residual connection around a sub-layer."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard import ops
from regard.model.layers import Dropout
from regard.shapes import Bool, Float


class Norm(nn.Module, ABC):
    """A normalisation; which tokens are padding is told to those whose statistics go over several tokens."""

    @abstractmethod
    def forward(self, x: Float[Tensor, "*B D"], token_mask: Bool[Tensor, "*B"] | None = None) -> Float[Tensor, "*B D"]:
        """Return the normalised vectors."""

    def add_norm(
        self,
        x: Float[Tensor, "*B D"],
        update: Float[Tensor, "*B D"],
        rate: float,
        token_mask: Bool[Tensor, "*B"] | None,
    ) -> Float[Tensor, "*B D"]:
        """Return `norm(x + dropout(update))`."""
        return self(x + ops.dropout(update, rate), token_mask)


class LayerNorm(nn.LayerNorm, Norm):
    """Normalise each token over its own features (Ba et al. 2016, arXiv:1607.06450)."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "*B D"], token_mask: Bool[Tensor, "*B"] | None = None
    ) -> Float[Tensor, "*B D"]:
        return ops.layer_norm(x, self.weight, self.bias, self.eps)

    def add_norm(
        self,
        x: Float[Tensor, "*B D"],
        update: Float[Tensor, "*B D"],
        rate: float,
        token_mask: Bool[Tensor, "*B"] | None,
    ) -> Float[Tensor, "*B D"]:
        return ops.add_layer_norm(x, update, self.weight, self.bias, self.eps, rate)


class RMSNorm(nn.RMSNorm, Norm):
    """Divide each token by the root mean square of its features (arXiv:1910.07467)."""

    def forward(self, x: Float[Tensor, "*B D"], token_mask: Bool[Tensor, "*B"] | None = None) -> Float[Tensor, "*B D"]:
        return super().forward(x)


class BatchNorm(Norm):
    """Normalise each feature over all tokens of the batch, padding left out (arXiv:1502.03167).

    Outside training it uses running means, so a token's result then does not depend on its batch.
    """

    mean: Float[Tensor, " D"]
    variance: Float[Tensor, " D"]

    def __init__(self, width: int, momentum: float = 0.1, eps: float = 1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.momentum = momentum
        self.eps = eps

    def forward(
        self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"] | None = None
    ) -> Float[Tensor, "B T D"]:
        mean, variance = self._batch_statistics(x, token_mask) if self.training else (self.mean, self.variance)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    def _batch_statistics(self, x: Tensor, token_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        share = torch.ones_like(x[..., :1]) if token_mask is None else token_mask[..., None].to(x.dtype)
        n = share.sum().clamp(min=1.0)
        mean = (x * share).sum(dim=(0, 1)) / n
        variance = ((x - mean).square() * share).sum(dim=(0, 1)) / n
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
            self.variance.lerp_(variance.to(self.variance.dtype), self.momentum)
        return mean, variance


NORM: dict[str, Callable[[int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


class Residual(nn.Module):
    """The connection around a sub-layer f, its norm after the sum or before f (arXiv:2002.04745).

    `norm(x + dropout(f(x)))`, or with `norm_first` `x + dropout(f(norm(x)))`. A layer asks `before` for the input of f
    and calls this module with what f returned, so that a forward hook sees the stream before, the update, and after.
    """

    def __init__(self, norm: Norm, norm_first: bool, dropout: float):
        super().__init__()
        self.norm = norm
        self.norm_first = norm_first
        self.dropout = Dropout(dropout)

    def before(self, x: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B T D"]:
        """Return the input of the sub-layer."""
        return self.norm(x, token_mask) if self.norm_first else x

    def forward(
        self, x: Float[Tensor, "B T D"], update: Float[Tensor, "B T D"], token_mask: Bool[Tensor, "B T"] | None
    ) -> Float[Tensor, "B T D"]:
        rate = self.dropout.current_rate()
        if self.norm_first:
            return ops.add_dropout(x, update, rate)
        return self.norm.add_norm(x, update, rate, token_mask)
