"""How long translations are in a corpus, and how surprising the lengths of a pair are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.shapes import Array, Float

BINS = 8  # of the common length, each twice as long as the one before
FEWEST = 30  # pairs of a bin that say something
NORMAL = 1.4826  # standard deviations of a normal law in a median absolute deviation
NARROWEST = 0.2  # standard deviation of the logarithm, below which no corpus is believed to lie
LIMIT = 4.5  # standard deviations: one pair in 150,000 of a normal law
# A pair whose corpus is unknown: any two languages that are written with letters or with characters for words.
ANY_SPREAD = 0.8


@dataclass(frozen=True, eq=False)
class LengthLaw:
    """The middle and the spread of log (target characters / source characters), by the size of the pair."""

    middles: Float[Array, " bins"]
    spreads: Float[Array, " bins"]
    limit: float = LIMIT

    def surprise(self, n_src: int, n_tgt: int) -> float:
        """Return how many standard deviations the ratio of two lengths lies from the middle of such pairs."""
        place = _bin(n_src, n_tgt)
        return abs(_ratio(n_src, n_tgt) - float(self.middles[place])) / float(self.spreads[place])


def _bin(n_src: int, n_tgt: int) -> int:
    return min((n_src * n_tgt).bit_length() // 2, BINS) - 1 if n_src * n_tgt > 1 else 0


def _ratio(n_src: int, n_tgt: int) -> float:
    return float(np.log((n_tgt + 1) / (n_src + 1)))


def fit_lengths(lengths: Sequence[tuple[int, int]]) -> LengthLaw:
    """Fit the law to a corpus by medians, which a minority of wrong pairs hardly moves.

    A bin with few pairs takes the law of the nearest that has more; with few pairs in all nearly every ratio passes.
    """
    bins = np.array([_bin(*each) for each in lengths], np.int64)
    ratios = np.array([_ratio(*each) for each in lengths])
    middles, spreads = np.zeros(BINS), np.full(BINS, ANY_SPREAD)
    known = [each for each in range(BINS) if np.count_nonzero(bins == each) >= FEWEST]
    for place in range(BINS if known else 0):
        own = ratios[bins == min(known, key=lambda each: abs(each - place))]
        middles[place] = np.median(own)
        spreads[place] = max(NORMAL * float(np.median(np.abs(own - middles[place]))), NARROWEST)
    return LengthLaw(middles, spreads)
