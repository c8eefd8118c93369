"""Normalisations and the residual around a sub-layer."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.model.layers import Dropout


class Norm(nn.Module):
    """What every norm can do besides: close a residual."""

    def add_norm(
        self,
        x: Float[Tensor, "*B D"],
        update: Float[Tensor, "*B D"],
        dropout: Dropout,
        real: Bool[Tensor, "*B"] | None,
    ) -> Float[Tensor, "*B D"]:
        """Gives `norm(x + dropout(update))`."""
        return self(x + dropout(update), real)


class LayerNorm(nn.LayerNorm, Norm):
    """Normalises each token over its own features (Ba et al. 2016, arXiv:1607.06450)."""

    # The second argument is there for norms that must know which tokens are real.
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, x: Float[Tensor, "*B D"], real: Bool[Tensor, "*B"] | None = None
    ) -> Float[Tensor, "*B D"]:
        return self._fused(x, None, 0.0) if self._fuses(x) else super().forward(x)

    def add_norm(
        self,
        x: Float[Tensor, "*B D"],
        update: Float[Tensor, "*B D"],
        dropout: Dropout,
        real: Bool[Tensor, "*B"] | None,
    ) -> Float[Tensor, "*B D"]:
        return (
            self._fused(x, update, dropout.current_rate())
            if self._fuses(x)
            else super().add_norm(x, update, dropout, real)
        )

    def _fuses(self, x: Tensor) -> bool:
        return x.is_cuda and x.dtype.itemsize <= 4 and x.numel() > 0

    def _fused(self, x: Tensor, update: Tensor | None, rate: float) -> Tensor:
        from regard.kernels.norm import add_norm  # only on a GPU is Triton installed

        return add_norm(x, update, self.weight, self.bias, self.eps, rate)


class RMSNorm(nn.RMSNorm, Norm):
    """Divides each token by the root mean square of its features (arXiv:1910.07467)."""

    def forward(self, x: Float[Tensor, "*B D"], real: Bool[Tensor, "*B"] | None = None) -> Float[Tensor, "*B D"]:
        return super().forward(x)


class BatchNorm(Norm):
    """Normalises each feature over all real tokens of the batch (Ioffe and Szegedy 2015, arXiv:1502.03167).

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

    def forward(self, x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None = None) -> Float[Tensor, "B T D"]:
        mean, variance = self._measured(x, real) if self.training else (self.mean, self.variance)
        return (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias

    def _measured(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        share = torch.ones_like(x[..., :1]) if real is None else real[..., None].to(x.dtype)
        n = share.sum().clamp(min=1.0)
        mean = (x * share).sum(dim=(0, 1)) / n
        variance = ((x - mean).square() * share).sum(dim=(0, 1)) / n
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
            self.variance.lerp_(variance.to(self.variance.dtype), self.momentum)
        return mean, variance


NORM: dict[str, Callable[[int], Norm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}


class Residual(nn.Module):
    """`norm(x + dropout(f(x)))`, or with the norm before the sub-layer `x + dropout(f(norm(x)))` (arXiv:2002.04745)."""

    def __init__(self, norm: Norm, norm_first: bool, dropout: float):
        super().__init__()
        self.norm = norm
        self.norm_first = norm_first
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        sublayer: Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]],
        real: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        if self.norm_first:
            return self._sum(x, sublayer(self.norm(x, real)))
        return self.norm.add_norm(x, sublayer(x), self.dropout, real)

    def _sum(self, x: Tensor, update: Tensor) -> Tensor:
        if not (update.is_cuda and self.training and update.dtype.itemsize <= 4):
            return x + self.dropout(update)
        from regard.kernels.norm import add_dropout  # only there is Triton installed

        return add_dropout(x, update, self.dropout.rate)
