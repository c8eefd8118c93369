"""Dropout that is quick on a CPU."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = 2**16


class Dropout(nn.Module):
    """Zeroes a share `rate` of the features while training and scales the others up (Srivastava et al. 2014).

    PyTorch's own draws one random number for each feature; on a CPU, which draws them one after another, that costs as
    much as a small matrix product. Here 16 random bits decide, a quarter of a drawn number, so that the share is exact
    to 1 in 65536. On other devices PyTorch's own is used.
    """

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {rate}")
        self.rate = rate

    def now(self) -> float:
        """Gives the share to drop in this call: none outside training."""
        return self.rate if self.training else 0.0

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        if self.now() == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.rate)
        return x * drawn(x, self.rate)


def drawn(x: Float[Tensor, "*shape"], rate: float) -> Float[Tensor, "*shape"]:
    """Draws 0 with the chance `rate`, else the factor that keeps the mean."""
    n = x.numel()
    words = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:n].view(x.shape)
    below = round(rate * LEVELS)
    return (bits >= below - LEVELS // 2) * torch.tensor(LEVELS / (LEVELS - below), dtype=x.dtype)
