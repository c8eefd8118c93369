"""Many ranges of numbers at once, one after the other."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Gives `start, start + 1, …` for each start, as many numbers as its length says."""
    before = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
