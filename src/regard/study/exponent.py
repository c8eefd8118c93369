"""The power with which a measured cost grows over its last sizes, where they are enough to tell."""

from collections.abc import Sequence

from regard.study.power import fit_power

LAST = 3  # sizes: two doublings
SEEN = 1.0  # MiB below which a process's memory, which is counted in pages, tells little


def exponent(sizes: Sequence[int], values: Sequence[float | int | None], least: float = 0.0) -> float | None:
    """Fits the last sizes whose values are known and above the least; None where there are fewer than three."""
    points = [(size, x) for size, x in zip(sizes, values, strict=False) if x is not None and x > least]
    if len(points) < LAST:
        return None
    return fit_power([size for size, _ in points], [x for _, x in points], LAST).exponent
