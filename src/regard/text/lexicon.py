"""Which pieces of one side go with which of the other: word translation by counting (IBM Model 1)."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from jaxtyping import Float, Int

Ids = Sequence[int]


class Links:
    """Every pair of a target piece with a source piece of its sentence, or with nothing; `kind` says which pieces."""

    def __init__(self, src: Sequence[Ids], tgt: Sequence[Ids], nothing: int):
        lengths = np.array([len(ids) + 1 for ids in src])
        said = np.array([len(ids) for ids in tgt])
        starts = np.cumsum(lengths) - lengths
        sources = np.fromiter(chain.from_iterable((nothing, *ids) for ids in src), np.int64)
        targets = np.fromiter(chain.from_iterable(tgt), np.int64)
        fans = np.repeat(lengths, said)  # links of each target piece
        first = np.repeat(starts, said)
        self.places = np.repeat(np.arange(len(targets)), fans)  # which target piece a link is of
        step = np.arange(len(self.places)) - np.repeat(np.cumsum(fans) - fans, fans)
        self.n_targets = len(targets)
        width = int(targets.max(initial=0)) + 1
        names = sources[np.repeat(first, fans) + step] * width + targets[self.places]
        kinds, self.kind = np.unique(names, return_inverse=True)
        self.src, self.tgt = kinds // width, kinds % width


def translation_chances(links: Links, rounds: int = 5) -> Float[np.ndarray, " kinds"]:
    """Gives `t(target | source)` of each kind of link by EM (Brown et al. 1993, aclanthology.org/J93-2003).

    Each target piece comes from one source piece of its sentence or from nothing, any of them as likely as another
    beforehand.
    """
    chances = np.ones(len(links.src))
    for _ in range(rounds):
        weights = chances[links.kind]
        weights /= np.bincount(links.places, weights, links.n_targets)[links.places]
        counts = np.bincount(links.kind, weights, len(chances))
        chances = counts / np.bincount(links.src, counts)[links.src]
    return chances


def best_targets(
    links: Links, chances: Float[np.ndarray, " kinds"], n_src: int, most: int
) -> Int[np.ndarray, "n_src most"]:
    """Gives the likeliest target pieces of each source piece, likeliest first, −1 where there are no more."""
    table = np.full((n_src, most), -1, np.int32)
    order = np.lexsort((links.tgt, -chances, links.src))
    src = links.src[order]
    rank = np.arange(len(src)) - np.searchsorted(src, src)
    kept = (rank < most) & (src < n_src)
    table[src[kept], rank[kept]] = links.tgt[order][kept]
    return table
