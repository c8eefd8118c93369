"""Which words go with which: IBM Model 1 in both directions, learned from the corpus, in tables of a fixed size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from regard.shapes import Array, Float, Int

Ragged = Sequence[Array]  # the distinct pieces of each sentence, in the order in which they first occur
LONGEST = 96  # pieces of a side that are linked; what follows is not looked at
ROUNDS = 4  # of EM
CHUNK = 1 << 20  # links at once
BITS = 23  # of a table: 8 million slots, 32 MB a direction
MOST_LINKS = 40_000_000  # that are learned from
ODD = np.uint64(0x9E3779B97F4A7C15)  # 2 ** 64 by the golden ratio: its multiples are spread evenly
RARE = 1.0  # occurrences added to those of a piece: a piece that is seen once proves little
PRIOR = 0.5  # occurrences added to those of a piece as a share of its side


@dataclass(frozen=True, eq=False)
class WordLinks:
    """Every pair of a source piece and a target piece of the same sentence pair, sentence after sentence.

    Pieces are numbered through a batch: `places` are those of a link's source and target, `sentences` those to which
    the pieces belong.
    """

    pieces: tuple[Int[Array, " src"], Int[Array, " tgt"]]
    sentences: tuple[Int[Array, " src"], Int[Array, " tgt"]]
    places: tuple[Int[Array, " links"], Int[Array, " links"]]
    slots: Int[Array, " links"]

    @classmethod
    def between(cls, src: Ragged, tgt: Ragged) -> "WordLinks":
        n_src, n_tgt = (np.array([len(each) for each in side], np.int64) for side in (src, tgt))
        a, b = (np.concatenate([np.zeros(0, np.int64), *side]) for side in (src, tgt))
        sentences = tuple(np.repeat(np.arange(len(counts)), counts) for counts in (n_src, n_tgt))
        fans = n_src[sentences[1]]  # links of each target piece
        tgt_places = np.repeat(np.arange(len(b)), fans)
        step = np.arange(len(tgt_places)) - np.repeat(np.cumsum(fans) - fans, fans)
        src_places = np.repeat((np.cumsum(n_src) - n_src)[sentences[1]], fans) + step
        slots = _slots(a[src_places], b[tgt_places])
        return cls((a, b), (sentences[0], sentences[1]), (src_places, tgt_places), slots)


def _slots(src: Int[Array, " links"], tgt: Int[Array, " links"]) -> Int[Array, " links"]:
    mixed = (src.astype(np.uint64) << np.uint64(32) | tgt.astype(np.uint64)) * ODD
    return (mixed >> np.uint64(64 - BITS)).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Lexicon:
    """Expected counts of links from each source piece (0) and from each target piece (1), and the pieces' shares.

    Links of which the hashes are equal share a slot: with a few million kinds of links that matters little, because EM
    leaves nearly nothing on most of them.
    """

    links: tuple[Float[Array, " slots"], Float[Array, " slots"]]
    totals: tuple[Float[Array, " src"], Float[Array, " tgt"]]
    shares: tuple[Float[Array, " src"], Float[Array, " tgt"]]

    def chances(self, links: WordLinks, given: int) -> Float[Array, " links"]:
        """Return t(the other piece | the piece of the given side) for each link."""
        totals = self.totals[given][links.pieces[given]] + RARE
        return self.links[given][links.slots] / totals[links.places[given]]


def learn_lexicon(src: Ragged, tgt: Ragged, sizes: tuple[int, int]) -> Lexicon:
    """Learn from sentence pairs by EM (Brown et al. 1993); sizes are those of the vocabularies."""
    sides = [ids[:LONGEST] for ids in src], [ids[:LONGEST] for ids in tgt]
    counts = [np.bincount(np.concatenate(side), minlength=n) + PRIOR for side, n in zip(sides, sizes, strict=True)]
    shares = (counts[0] / counts[0].sum(), counts[1] / counts[1].sum())
    found = None
    for _ in range(ROUNDS):
        tables = np.zeros(1 << BITS, np.float32), np.zeros(1 << BITS, np.float32)
        totals = np.zeros(sizes[0]), np.zeros(sizes[1])
        for some in link_groups(*sides, CHUNK):
            links = WordLinks.between(sides[0][some], sides[1][some])
            for given in (0, 1):
                own = _expected(links, found, given)
                np.add.at(tables[given], links.slots, own)
                per_piece = np.bincount(links.places[given], own, minlength=len(links.pieces[given]))
                np.add.at(totals[given], links.pieces[given], per_piece)
        found = Lexicon(tables, totals, shares)
    assert found is not None, "there is at least one round"
    return found


def _expected(links: WordLinks, lexicon: Lexicon | None, given: int) -> Float[Array, " links"]:
    """Return how much of each piece of the other side comes over each of its links."""
    chances = np.ones(len(links.slots)) if lexicon is None else lexicon.chances(links, given)
    place = links.places[1 - given]
    return (chances / np.maximum(np.bincount(place, chances), 1e-30)[place]).astype(np.float32)


def link_groups(src: Ragged, tgt: Ragged, n_links: int) -> Iterator[slice]:
    """Cut sentence pairs into stretches of about so many links."""
    stops = np.cumsum([len(a) * len(b) for a, b in zip(src, tgt, strict=True)])
    starts = [0, *(np.flatnonzero(np.diff(stops // n_links)) + 1).tolist(), len(src)]
    return (slice(a, b) for a, b in pairwise(starts) if b > a)


def fitting(src: Ragged, tgt: Ragged) -> int:
    """Return how many of the first pairs have no more links than are learned from."""
    sizes = [min(len(a), LONGEST) * min(len(b), LONGEST) for a, b in zip(src, tgt, strict=True)]
    return int(np.searchsorted(np.cumsum(sizes), MOST_LINKS, side="right"))
