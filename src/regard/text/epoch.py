"""Which pairs an epoch sees, how often, and in which of their segmentations."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.ranges import Ints

TIMES, CUTS = 1, 2  # what is drawn; a trainer's own draws begin with its seed and its epoch
Origins = NDArray[np.unsignedinteger]


def draw_pairs(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Gives the pairs that an epoch sees, in their order, some of them several times and some perhaps not at all."""
    times = _seen(origins, weights, seed, epoch + 1) - _seen(origins, weights, seed, epoch)
    return np.repeat(np.arange(len(origins)), times)


def draw_variants(
    pairs: Ints, origins: Origins, weights: Sequence[float], n_variants: int, seed: int, epoch: int
) -> Ints:
    """Gives a source and a target segmentation, 1 … n_variants, for each of an epoch's pairs, (n, 2).

    Each time it is seen a pair comes in its next segmentation, so none recurs before all were seen; then source and
    target segmentations meet in other combinations.
    """
    if not n_variants:
        return np.zeros((len(pairs), 2), dtype=np.int64)
    turns = _seen(origins, weights, seed, epoch)[pairs] + _repeats(pairs)
    begin = np.random.default_rng([seed, 0, CUTS]).integers(n_variants, size=(len(origins), 2))[pairs]
    return 1 + (begin + np.stack([turns, turns + turns // n_variants], axis=1)) % n_variants


def _seen(origins: Origins, weights: Sequence[float], seed: int, epoch: int) -> Ints:
    """Counts how often each pair was seen before an epoch: `floor(weight · epoch + u)`, with a u < 1 of its own.

    That is weight times an epoch, as evenly as can be, and known without looking back.
    """
    if all(weight == 1 for weight in weights):
        return np.full(len(origins), epoch)
    begin = np.random.default_rng([seed, 0, TIMES]).random(len(origins))
    return np.floor(np.asarray(weights)[origins] * epoch + begin).astype(np.int64)


def _repeats(pairs: Ints) -> Ints:
    """Counts for each of some pairs in their order how often the same stands right before it."""
    places = np.arange(len(pairs))
    begins = np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)]
    return places - np.maximum.accumulate(np.where(begins, places, 0))
