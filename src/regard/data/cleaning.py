"""Which pairs are used for training, why others are left out, and the report."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.config import TextSettings
from regard.data.normalise import Pair, dedup_key
from regard.data.tokenizer import Tokenizer


class Status(IntEnum):
    """The split that a pair goes to, or the reason it is left out."""

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
class PairIndex:
    """For each pair in reading order: its status, its source, its hash, and the hashes of its sentences' dedup keys."""

    statuses: NDArray[np.uint8]
    origins: NDArray[np.uint16]
    pairs: NDArray[np.uint64]
    src: NDArray[np.uint64]
    tgt: NDArray[np.uint64]

    def count(self, status: Status) -> int:
        return int(np.count_nonzero(self.statuses == status))

    def indices(self, *wanted: Status) -> NDArray[np.intp]:
        """Return the indices of the pairs with one of these statuses, in reading order."""
        return np.flatnonzero(np.isin(self.statuses, wanted))

    def select(self, pairs: Iterable[Pair], *wanted: Status) -> Iterator[Pair]:
        """Yield the pairs with one of these statuses from another pass over the same text."""
        marks = np.isin(self.statuses, wanted).tobytes()
        n = 0
        for n, pair in enumerate(pairs, start=1):
            if n <= len(marks) and marks[n - 1]:
                yield pair
        if n != len(marks):
            raise ValueError(f"the text must not change during preparation, got {len(marks)} pairs and then {n}")

    def mark(self, mask: NDArray[np.bool_], status: Status) -> "PairIndex":
        """Return the index with another status for the training pairs in the mask."""
        marked = mask & (self.statuses == Status.TRAIN)
        return replace(self, statuses=np.where(marked, np.uint8(status), self.statuses))

    def overlapping(self, src: NDArray[np.uint64], tgt: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return a mask of the pairs whose source or target sentence is among the given hashes."""
        return np.isin(self.src, src) | np.isin(self.tgt, tgt)


def scan(pairs: Iterable[Pair], max_chars: int) -> PairIndex:
    """Hash every pair, and mark empty ones, those longer than `max_chars`, and all but the first of duplicates."""
    statuses, origins, both, src, tgt = (bytearray() for _ in range(5))
    for pair in pairs:
        statuses.append(_first_status(pair, max_chars))
        origins += pair.origin.to_bytes(2, "little")
        both += hash_pair(pair)
        src += digest(dedup_key(pair.src))
        tgt += digest(dedup_key(pair.tgt))
    hashes = (np.frombuffer(column, "<u8") for column in (both, src, tgt))
    index = PairIndex(np.frombuffer(statuses, np.uint8), np.frombuffer(origins, "<u2"), *hashes)
    return index.mark(_repeated(index), Status.DUPLICATE)


def hash_keys(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Return 8-byte hashes of the texts' dedup keys; a billion texts have a collision with a probability of 3 %."""
    return np.frombuffer(b"".join(digest(dedup_key(text)) for text in texts), "<u8")


def digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=8).digest()


def hash_pair(pair: Pair) -> bytes:
    """Hash a pair as written to 8 bytes; the odd factor keeps hashes uniform and tells (a, b) from (b, a)."""
    src, tgt = (int.from_bytes(digest(text), "little") for text in (pair.src, pair.tgt))
    return ((src * 0x9E3779B97F4A7C15 + tgt) % (1 << 64)).to_bytes(8, "little")


def _first_status(pair: Pair, max_chars: int) -> Status:
    if pair.overlong:
        return Status.OVERLONG
    if not pair.src or not pair.tgt:
        return Status.EMPTY
    return Status.OVERLONG if max(len(pair.src), len(pair.tgt)) > max_chars else Status.TRAIN


def _repeated(ledger: PairIndex) -> NDArray[np.bool_]:
    _, first = np.unique(ledger.pairs, return_index=True)
    repeated = np.ones(len(ledger.statuses), dtype=bool)
    repeated[first] = False
    return repeated


CHUNK = 4096  # pairs encoded at once
# A ratio says little about short sentences: 好。 is two tokens, and "That is quite all right." six.
SHORT = 12  # tokens; no ratio is taken if neither side is longer


@dataclass(frozen=True)
class EncodedPair:
    """A pair and its ids; its status is TRAIN if its lengths are within the limits."""

    pair: Pair
    src: list[int]
    tgt: list[int]
    status: Status


def encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, settings: TextSettings) -> Iterator[EncodedPair]:
    """Encode pairs, many at a time, and check their lengths."""
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        src = tokenizer.encode_batch((pair.src for pair in chunk), "src")
        tgt = tokenizer.encode_batch((pair.tgt for pair in chunk), "tgt")
        for pair, a, b in zip(chunk, src, tgt, strict=True):
            yield EncodedPair(pair, a, b, check_lengths(len(a), len(b), settings))


def check_lengths(n_src: int, n_tgt: int, settings: TextSettings) -> Status:
    """Return the status of a pair by its numbers of tokens."""
    shorter, longer = sorted((n_src, n_tgt))
    if longer > settings.max_len:
        return Status.OVERLONG
    return Status.OUTLIER if longer > max(SHORT, settings.max_ratio * shorter) else Status.TRAIN


MIN_PAIRS_PER_VALID = 10  # at most one pair in ten is split off


def split_valid(index: PairIndex, wanted: int, origins: Sequence[int]) -> PairIndex:
    """Move pairs of some sources to validation, and mark the training pairs that share a sentence with them.

    Pairs are chosen by hash, so the choice does not depend on the order of the text and changes little when text is
    added. Pairs whose sentences occur nowhere else come first: they remove no other pair from training.
    """
    candidates = index.indices(Status.TRAIN)
    candidates = candidates[np.isin(index.origins[candidates], origins)]
    n = min(wanted, len(candidates) // MIN_PAIRS_PER_VALID)
    if not n:
        raise ValueError(
            f"a text must have {MIN_PAIRS_PER_VALID} pairs or more to split off a validation set, got "
            f"{len(candidates)} usable of {len(index.statuses)}; add text, or give validation text with data.valid"
        )
    occurrences = _occurrences(index.src[candidates]) + _occurrences(index.tgt[candidates])
    valid = candidates[np.lexsort((index.pairs[candidates], occurrences))[:n]]
    split = index.mark(index.overlapping(index.src[valid], index.tgt[valid]), Status.IN_VALID)
    split.statuses[valid] = Status.VALID
    if not split.count(Status.TRAIN):
        raise ValueError(
            f"a validation set must leave training pairs that share no sentence with it, got 0 of {len(candidates)}; "
            "give validation text with data.valid"
        )
    return split


def _occurrences(hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    return counts[inverse]


N_EXAMPLES = 3
REASONS = {
    Status.EMPTY: "with an empty side",
    Status.OVERLONG: "with an overlong side",
    Status.DUPLICATE: "that occurred before",
    Status.OUTLIER: "with sides of very different lengths",
    Status.IN_VALID: "that share a sentence with validation",
    Status.IN_TEST: "that share a sentence with test",
    Status.EXCLUDED: "that share a sentence with data.exclude",
}


# Documents have one side.
DOCUMENT_REASONS = {
    Status.EMPTY: "that are empty",
    Status.OVERLONG: "that are overlong",
    Status.IN_VALID: "that occur in validation",
    Status.IN_TEST: "that occur in test",
}


@dataclass(frozen=True)
class Origin:
    """One of several sources of training text: its pairs, and how often an epoch sees each of them."""

    source: str
    train: int
    weight: float


@dataclass(frozen=True)
class LeftOut:
    """How many pairs were left out for one reason, and the places of the first."""

    what: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class DataReport:
    """The sizes of the splits and what was left out: `read` is the sum of training, split-off and left-out pairs."""

    read: int
    train: int
    valid: int
    test: int
    valid_is_split: bool  # off the training text
    left_out: tuple[LeftOut, ...]
    held_empty: int  # pairs of the validation and test text left out for an empty side
    origins: tuple[Origin, ...] = ()  # if there are several
    unit: str = "pairs"  # or documents, or characters of running text

    def left_out_by(self, status: Status) -> LeftOut:
        return next(reason for reason in self.left_out if reason.what == status.name.lower())

    def lines(self) -> list[str]:
        """Return the report in a few lines, without reasons that do not occur."""
        split = " (split off)" if self.valid_is_split else ""
        lines = [
            f"{self.read:,} {self.unit} read: {self.train:,} for training, {self.valid:,} for validation{split}, "
            f"{self.test:,} for test"
        ]
        for origin in self.origins:
            lines.append(_origin_line(origin))
        for status, words in (REASONS if self.unit == "pairs" else REASONS | DOCUMENT_REASONS).items():
            reason = self.left_out_by(status)
            if reason.count:
                lines.append(f"{reason.count:,} left out {words} ({'; '.join(reason.examples)})")
        if self.held_empty:
            lines.append(f"{self.held_empty:,} left out of validation and test with an empty side")
        return lines


def _origin_line(origin: Origin) -> str:
    if not origin.train:
        return f"NOTHING for training from {origin.source}: all pairs were left out, for the reasons below"
    often = "" if origin.weight == 1 else f", each seen {origin.weight:g} times an epoch"
    return f"{origin.train:,} for training from {origin.source}{often}"


def count_left_out(index: PairIndex, examples: Mapping[Status, Sequence[str]]) -> tuple[LeftOut, ...]:
    """Return the number of pairs left out for each reason, with examples."""
    return tuple(
        LeftOut(status.name.lower(), index.count(status), tuple(examples.get(status, ()))) for status in REASONS
    )


def count_origins(index: PairIndex, sources: Sequence[str], weights: Sequence[float]) -> tuple[Origin, ...]:
    """Return the training pairs of each source, if there are several."""
    counts = np.bincount(index.origins[index.indices(Status.TRAIN)], minlength=len(sources)).tolist()
    each = zip(sources, counts, weights, strict=True)
    return tuple(Origin(*origin) for origin in each) if len(sources) > 1 else ()


def write_report(report: DataReport, path: Path) -> None:
    path.write_text(json.dumps(asdict(report), ensure_ascii=False, indent=1), encoding="utf-8")


def read_report(path: Path) -> DataReport:
    try:
        table: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        left_out = (LeftOut(**finding | {"examples": tuple(finding["examples"])}) for finding in table.pop("left_out"))
        origins = tuple(Origin(**origin) for origin in table.pop("origins"))
        return DataReport(left_out=tuple(left_out), origins=origins, **table)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: a report must be complete, got {error!r}; delete its folder to redo it") from error
