"""What becomes of each training pair, in 27 bytes a pair, so that any number of them can be judged at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from regard.text.key import key_of
from regard.text.pair import Pair


class Verdict(IntEnum):
    """Where a pair goes; all but the first two leave it out."""

    TRAIN = 0
    VALID = 1
    EMPTY = 2
    OVERLONG = 3
    DUPLICATE = 4
    IN_VALID = 5
    IN_TEST = 6
    OUTLIER = 7
    EXCLUDED = 8


@dataclass(frozen=True, eq=False)
class Ledger:
    """For each pair in the order of reading: a verdict, its source, a hash of it, and hashes of its sentences' keys."""

    verdicts: NDArray[np.uint8]
    origins: NDArray[np.uint16]
    pairs: NDArray[np.uint64]
    src: NDArray[np.uint64]
    tgt: NDArray[np.uint64]

    def count(self, verdict: Verdict) -> int:
        """Counts the pairs of one verdict."""
        return int(np.count_nonzero(self.verdicts == verdict))

    def places(self, *wanted: Verdict) -> NDArray[np.intp]:
        """Gives the places of the pairs with one of these verdicts, in the order of reading."""
        return np.flatnonzero(np.isin(self.verdicts, wanted))

    def select(self, pairs: Iterable[Pair], *wanted: Verdict) -> Iterator[Pair]:
        """Gives those pairs of another reading that have one of these verdicts."""
        marks = np.isin(self.verdicts, wanted).tobytes()
        n = 0
        for n, pair in enumerate(pairs, start=1):
            if n <= len(marks) and marks[n - 1]:
                yield pair
        if n != len(marks):
            raise ValueError(f"the text must not change while it is read, got {len(marks)} pairs and then {n}")

    def struck(self, places: NDArray[np.bool_], verdict: Verdict) -> "Ledger":
        """Gives the ledger with another verdict for those training pairs that are marked."""
        marked = places & (self.verdicts == Verdict.TRAIN)
        return replace(self, verdicts=np.where(marked, np.uint8(verdict), self.verdicts))

    def sharing(self, src: NDArray[np.uint64], tgt: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Marks the pairs that have a source or a target sentence in common with those given by their hashes."""
        return np.isin(self.src, src) | np.isin(self.tgt, tgt)


def take_stock(pairs: Iterable[Pair], max_chars: int) -> Ledger:
    """Hashes every pair, and strikes out empty ones, ones with more characters, and all but the first of equals."""
    verdicts, origins, both, src, tgt = (bytearray() for _ in range(5))
    for pair in pairs:
        verdicts.append(_at_sight(pair, max_chars))
        origins += pair.origin.to_bytes(2, "little")
        both += hash_pair(pair)
        src += digest(key_of(pair.src))
        tgt += digest(key_of(pair.tgt))
    hashes = (np.frombuffer(column, "<u8") for column in (both, src, tgt))
    ledger = Ledger(np.frombuffer(verdicts, np.uint8), np.frombuffer(origins, "<u2"), *hashes)
    return ledger.struck(_repeated(ledger), Verdict.DUPLICATE)


def hash_keys(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Gives the hash of each text's key, 8 bytes; among a billion texts there are two alike with a chance of 3 %."""
    return np.frombuffer(b"".join(digest(key_of(text)) for text in texts), "<u8")


def digest(text: str) -> bytes:
    """Hashes one text to 8 bytes."""
    return blake2b(text.encode(), digest_size=8).digest()


def hash_pair(pair: Pair) -> bytes:
    """Hashes a pair as it is written to 8 bytes; an odd factor keeps them uniform, and tells (a, b) from (b, a)."""
    src, tgt = (int.from_bytes(digest(text), "little") for text in (pair.src, pair.tgt))
    return ((src * 0x9E3779B97F4A7C15 + tgt) % (1 << 64)).to_bytes(8, "little")


def _at_sight(pair: Pair, max_chars: int) -> Verdict:
    if not pair.src or not pair.tgt:
        return Verdict.EMPTY
    return Verdict.OVERLONG if max(len(pair.src), len(pair.tgt)) > max_chars else Verdict.TRAIN


def _repeated(ledger: Ledger) -> NDArray[np.bool_]:
    _, first = np.unique(ledger.pairs, return_index=True)
    repeated = np.ones(len(ledger.verdicts), dtype=bool)
    repeated[first] = False
    return repeated
