"""Which pairs are kept, why others are not, and the report of it."""

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
class PairIndex:
    """For each pair in the order of reading: a verdict, its source, a hash of it, and hashes of its sentences' keys."""

    statuses: NDArray[np.uint8]
    origins: NDArray[np.uint16]
    pairs: NDArray[np.uint64]
    src: NDArray[np.uint64]
    tgt: NDArray[np.uint64]

    def count(self, status: Status) -> int:
        """Counts the pairs of one verdict."""
        return int(np.count_nonzero(self.statuses == status))

    def indices(self, *wanted: Status) -> NDArray[np.intp]:
        """Gives the places of the pairs with one of these verdicts, in the order of reading."""
        return np.flatnonzero(np.isin(self.statuses, wanted))

    def select(self, pairs: Iterable[Pair], *wanted: Status) -> Iterator[Pair]:
        """Gives those pairs of another reading that have one of these verdicts."""
        marks = np.isin(self.statuses, wanted).tobytes()
        n = 0
        for n, pair in enumerate(pairs, start=1):
            if n <= len(marks) and marks[n - 1]:
                yield pair
        if n != len(marks):
            raise ValueError(f"the text must not change while it is read, got {len(marks)} pairs and then {n}")

    def mark(self, mask: NDArray[np.bool_], status: Status) -> "PairIndex":
        """Gives the ledger with another verdict for those training pairs that are marked."""
        marked = mask & (self.statuses == Status.TRAIN)
        return replace(self, statuses=np.where(marked, np.uint8(status), self.statuses))

    def overlapping(self, src: NDArray[np.uint64], tgt: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Marks the pairs that have a source or a target sentence in common with those given by their hashes."""
        return np.isin(self.src, src) | np.isin(self.tgt, tgt)


def scan(pairs: Iterable[Pair], max_chars: int) -> PairIndex:
    """Hashes every pair, and strikes out empty ones, ones with more characters, and all but the first of equals."""
    verdicts, origins, both, src, tgt = (bytearray() for _ in range(5))
    for pair in pairs:
        verdicts.append(_first_status(pair, max_chars))
        origins += pair.origin.to_bytes(2, "little")
        both += hash_pair(pair)
        src += digest(dedup_key(pair.src))
        tgt += digest(dedup_key(pair.tgt))
    hashes = (np.frombuffer(column, "<u8") for column in (both, src, tgt))
    index = PairIndex(np.frombuffer(verdicts, np.uint8), np.frombuffer(origins, "<u2"), *hashes)
    return index.mark(_repeated(index), Status.DUPLICATE)


def hash_keys(texts: Iterable[str]) -> NDArray[np.uint64]:
    """Gives the hash of each text's key, 8 bytes; among a billion texts there are two alike with a chance of 3 %."""
    return np.frombuffer(b"".join(digest(dedup_key(text)) for text in texts), "<u8")


def digest(text: str) -> bytes:
    """Hashes one text to 8 bytes."""
    return blake2b(text.encode(), digest_size=8).digest()


def hash_pair(pair: Pair) -> bytes:
    """Hashes a pair as it is written to 8 bytes; an odd factor keeps them uniform, and tells (a, b) from (b, a)."""
    src, tgt = (int.from_bytes(digest(text), "little") for text in (pair.src, pair.tgt))
    return ((src * 0x9E3779B97F4A7C15 + tgt) % (1 << 64)).to_bytes(8, "little")


def _first_status(pair: Pair, max_chars: int) -> Status:
    if not pair.src or not pair.tgt:
        return Status.EMPTY
    return Status.OVERLONG if max(len(pair.src), len(pair.tgt)) > max_chars else Status.TRAIN


def _repeated(ledger: PairIndex) -> NDArray[np.bool_]:
    _, first = np.unique(ledger.pairs, return_index=True)
    repeated = np.ones(len(ledger.statuses), dtype=bool)
    repeated[first] = False
    return repeated


CHUNK = 4096  # pairs that are encoded at once
# A ratio says little of short sentences: 好。 is two pieces, and "That is quite all right." six.
SHORT = 12  # pieces; a pair with no longer side has no ratio


@dataclass(frozen=True)
class EncodedPair:
    """A pair with its ids; the verdict is TRAIN where it fits."""

    pair: Pair
    src: list[int]
    tgt: list[int]
    status: Status


def encode_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, settings: TextSettings) -> Iterator[EncodedPair]:
    """Encodes pairs, many at a time, and measures each."""
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        src = tokenizer.encode_batch((pair.src for pair in chunk), "src")
        tgt = tokenizer.encode_batch((pair.tgt for pair in chunk), "tgt")
        for pair, a, b in zip(chunk, src, tgt, strict=True):
            yield EncodedPair(pair, a, b, check_lengths(len(a), len(b), settings))


def check_lengths(n_src: int, n_tgt: int, settings: TextSettings) -> Status:
    """Judges a pair by the numbers of its pieces."""
    shorter, longer = sorted((n_src, n_tgt))
    if longer > settings.max_len:
        return Status.OVERLONG
    return Status.OUTLIER if longer > max(SHORT, settings.max_ratio * shorter) else Status.TRAIN


MIN_PAIRS_PER_VALID = 10  # at most one pair in so many is split off


def split_valid(index: PairIndex, wanted: int, origins: Sequence[int]) -> PairIndex:
    """Moves pairs of some sources to validation, and strikes out the training pairs that share a sentence with them.

    The choice goes by hash, so it does not change with the order of the text and little when text is added. Pairs
    whose sentences occur nowhere else come first: they take no other pair out of training.
    """
    places = index.indices(Status.TRAIN)
    places = places[np.isin(index.origins[places], origins)]
    n = min(wanted, len(places) // MIN_PAIRS_PER_VALID)
    if not n:
        raise ValueError(
            f"a text must have {MIN_PAIRS_PER_VALID} pairs or more to split off a validation set, got "
            f"{len(places)} usable of {len(index.statuses)}; add text, or give validation text with data.valid"
        )
    occurrences = _occurrences(index.src[places]) + _occurrences(index.tgt[places])
    chosen = places[np.lexsort((index.pairs[places], occurrences))[:n]]
    split = index.mark(index.overlapping(index.src[chosen], index.tgt[chosen]), Status.IN_VALID)
    split.statuses[chosen] = Status.VALID
    if not split.count(Status.TRAIN):
        raise ValueError(
            f"validation must leave training pairs that share no sentence with it, got 0 of {len(places)}; "
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


# In the words of documents, which have one side.
DOCUMENT_REASONS = {
    Status.EMPTY: "that are empty",
    Status.OVERLONG: "that are overlong",
    Status.IN_VALID: "that stand in validation",
    Status.IN_TEST: "that stand in test",
}


@dataclass(frozen=True)
class LeftOut:
    """Pairs that were left out for one reason, and where the first of them stand."""

    what: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """One of several sources of training text: its pairs, and how often an epoch sees each."""

    source: str
    train: int
    weight: float


@dataclass(frozen=True)
class DataReport:
    """The sizes of the splits and what was left out: `read` is the sum of training, split-off and left-out pairs."""

    read: int
    train: int
    valid: int
    test: int
    valid_is_split: bool  # off the training text
    left_out: tuple[LeftOut, ...]
    held_empty: int  # pairs of given validation and test text, left out for an empty side
    origins: tuple[Origin, ...] = ()  # where there are several
    unit: str = "pairs"  # or documents, or characters of a running text

    def left_out_by(self, status: Status) -> LeftOut:
        """Gives the finding of one kind."""
        return next(finding for finding in self.left_out if finding.what == status.name.lower())

    def lines(self) -> list[str]:
        """Says it in a few lines; kinds that do not occur are not mentioned."""
        split = " (split off)" if self.valid_is_split else ""
        said = [
            f"{self.read:,} {self.unit} read: {self.train:,} for training, {self.valid:,} for validation{split}, "
            f"{self.test:,} for test"
        ]
        for origin in self.origins:
            said.append(_origin_line(origin))
        for verdict, words in (REASONS if self.unit == "pairs" else REASONS | DOCUMENT_REASONS).items():
            finding = self.left_out_by(verdict)
            if finding.count:
                said.append(f"{finding.count:,} left out {words} ({'; '.join(finding.examples)})")
        if self.held_empty:
            said.append(f"{self.held_empty:,} left out of validation and test with an empty side")
        return said


def _origin_line(origin: Origin) -> str:
    if not origin.train:
        return f"NOTHING for training from {origin.source}: all of it was left out, for reasons that are told below"
    often = "" if origin.weight == 1 else f", each seen {origin.weight:g} times an epoch"
    return f"{origin.train:,} for training from {origin.source}{often}"


def count_left_out(index: PairIndex, examples: Mapping[Status, Sequence[str]]) -> tuple[LeftOut, ...]:
    """Counts what was left out, kind by kind."""
    return tuple(
        LeftOut(verdict.name.lower(), index.count(verdict), tuple(examples.get(verdict, ()))) for verdict in REASONS
    )


def count_origins(index: PairIndex, sources: Sequence[str], weights: Sequence[float]) -> tuple[Origin, ...]:
    """Counts the training pairs of each source, where there are several."""
    counts = np.bincount(index.origins[index.indices(Status.TRAIN)], minlength=len(sources)).tolist()
    each = zip(sources, counts, weights, strict=True)
    return tuple(Origin(*origin) for origin in each) if len(sources) > 1 else ()


def write_report(report: DataReport, path: Path) -> None:
    """Writes a report as JSON."""
    path.write_text(json.dumps(asdict(report), ensure_ascii=False, indent=1), encoding="utf-8")


def read_report(path: Path) -> DataReport:
    """Reads what `write_report` wrote."""
    try:
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        left_out = (LeftOut(**finding | {"examples": tuple(finding["examples"])}) for finding in given.pop("left_out"))
        origins = tuple(Origin(**origin) for origin in given.pop("origins"))
        return DataReport(left_out=tuple(left_out), origins=origins, **given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: a report must be whole, got {error!r}; delete its folder to make it anew") from error
