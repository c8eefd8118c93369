"""Power laws: the exponent with which one measured quantity grows with another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """`value ≈ factor · size^exponent` by least squares of logarithms over the sizes low … high."""

    exponent: float
    factor: float
    low: int
    high: int


def fit_power(sizes: Sequence[int], values: Sequence[float | int], last: int = 4) -> Fit:
    """Fits the `last` largest sizes, where what is small beside the law has died away."""
    points = sorted(zip(sizes, values, strict=True))[-last:]
    if len(points) < 2 or len({size for size, _ in points}) != len(points):
        raise ValueError(f"an exponent needs 2 or more different sizes, got {list(sizes)}")
    if min(min(point) for point in points) <= 0:
        raise ValueError(f"a power law has sizes and values above 0, got {points}")
    x, y = [math.log(size) for size, _ in points], [math.log(value) for _, value in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return Fit(exponent, math.exp(mean_y - exponent * mean_x), points[0][0], points[-1][0])
