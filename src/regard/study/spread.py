"""A mean over repeats, with its spread."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Spread:
    """The mean of some measurements, and their standard deviation; 0 where there is one alone."""

    mean: float
    spread: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.spread:.3f}".replace("-", "−")


def spread(values: Float[Tensor, " n"] | Iterable[float]) -> Spread:
    """Gathers repeats of one measurement."""
    numbers = torch.as_tensor(values if isinstance(values, Tensor) else list(values), dtype=torch.float64)
    if numbers.numel() == 0:
        raise ValueError("a mean needs one measurement or more, got 0")
    deviation = float(numbers.std()) if numbers.numel() > 1 else 0.0
    return Spread(float(numbers.mean()), deviation, numbers.numel())
