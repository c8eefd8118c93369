"""Validation text split off training text."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.text.ledger import Ledger, Verdict

SHARE = 10  # at most one pair in so many is split off


def split_valid(ledger: Ledger, wanted: int, origins: Sequence[int]) -> Ledger:
    """Moves pairs of some sources to validation, and strikes out the training pairs that share a sentence with them.

    The choice goes by hash, so it does not change with the order of the text and little when text is added. Pairs
    whose sentences occur nowhere else come first: they take no other pair out of training.
    """
    places = ledger.places(Verdict.TRAIN)
    places = places[np.isin(ledger.origins[places], origins)]
    n = min(wanted, len(places) // SHARE)
    if not n:
        raise ValueError(
            f"a text must have {SHARE} pairs or more to split validation off, got {len(places)} that can be used of "
            f"{len(ledger.verdicts)}; add text, or give validation text with data.valid"
        )
    occurrences = _occurrences(ledger.src[places]) + _occurrences(ledger.tgt[places])
    chosen = places[np.lexsort((ledger.pairs[places], occurrences))[:n]]
    split = ledger.struck(ledger.sharing(ledger.src[chosen], ledger.tgt[chosen]), Verdict.IN_VALID)
    split.verdicts[chosen] = Verdict.VALID
    if not split.count(Verdict.TRAIN):
        raise ValueError(
            f"validation must leave training pairs that share no sentence with it, got 0 of {len(places)}; "
            "give validation text with data.valid"
        )
    return split


def _occurrences(hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse]
