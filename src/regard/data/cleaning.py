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
from regard.data.normalise import Pair, key_of
from regard.data.tokenizer import Tokenizer


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


CHUNK = 4096  # pairs that are encoded at once
# A ratio says little of short sentences: 好。 is two pieces, and "That is quite all right." six.
SHORT = 12  # pieces; a pair with no longer side has no ratio


@dataclass(frozen=True)
class Fitted:
    """A pair with its ids; the verdict is TRAIN where it fits."""

    pair: Pair
    src: list[int]
    tgt: list[int]
    verdict: Verdict


def fit_pairs(pairs: Iterable[Pair], tokenizer: Tokenizer, settings: TextSettings) -> Iterator[Fitted]:
    """Encodes pairs, many at a time, and measures each."""
    rest = iter(pairs)
    while chunk := list(islice(rest, CHUNK)):
        src = tokenizer.encode_batch((pair.src for pair in chunk), "src")
        tgt = tokenizer.encode_batch((pair.tgt for pair in chunk), "tgt")
        for pair, a, b in zip(chunk, src, tgt, strict=True):
            yield Fitted(pair, a, b, measure(len(a), len(b), settings))


def measure(n_src: int, n_tgt: int, settings: TextSettings) -> Verdict:
    """Judges a pair by the numbers of its pieces."""
    shorter, longer = sorted((n_src, n_tgt))
    if longer > settings.max_len:
        return Verdict.OVERLONG
    return Verdict.OUTLIER if longer > max(SHORT, settings.max_ratio * shorter) else Verdict.TRAIN


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


N_EXAMPLES = 3
WORDS = {
    Verdict.EMPTY: "with an empty side",
    Verdict.OVERLONG: "with an overlong side",
    Verdict.DUPLICATE: "that occurred before",
    Verdict.OUTLIER: "with sides of very different lengths",
    Verdict.IN_VALID: "that share a sentence with validation",
    Verdict.IN_TEST: "that share a sentence with test",
    Verdict.EXCLUDED: "that share a sentence with data.exclude",
}


# In the words of documents, which have one side.
OF_DOCUMENTS = {
    Verdict.EMPTY: "that are empty",
    Verdict.OVERLONG: "that are overlong",
    Verdict.IN_VALID: "that stand in validation",
    Verdict.IN_TEST: "that stand in test",
}


@dataclass(frozen=True)
class Finding:
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
    left_out: tuple[Finding, ...]
    held_empty: int  # pairs of given validation and test text, left out for an empty side
    origins: tuple[Origin, ...] = ()  # where there are several
    unit: str = "pairs"  # or documents, or characters of a running text

    def left(self, verdict: Verdict) -> Finding:
        """Gives the finding of one kind."""
        return next(finding for finding in self.left_out if finding.what == verdict.name.lower())

    def lines(self) -> list[str]:
        """Says it in a few lines; kinds that do not occur are not mentioned."""
        split = " (split off)" if self.valid_is_split else ""
        said = [
            f"{self.read:,} {self.unit} read: {self.train:,} for training, {self.valid:,} for validation{split}, "
            f"{self.test:,} for test"
        ]
        for origin in self.origins:
            said.append(_told(origin))
        for verdict, words in (WORDS if self.unit == "pairs" else WORDS | OF_DOCUMENTS).items():
            finding = self.left(verdict)
            if finding.count:
                said.append(f"{finding.count:,} left out {words} ({'; '.join(finding.examples)})")
        if self.held_empty:
            said.append(f"{self.held_empty:,} left out of validation and test with an empty side")
        return said


def _told(origin: Origin) -> str:
    if not origin.train:
        return f"NOTHING for training from {origin.source}: all of it was left out, for reasons that are told below"
    often = "" if origin.weight == 1 else f", each seen {origin.weight:g} times an epoch"
    return f"{origin.train:,} for training from {origin.source}{often}"


def find(ledger: Ledger, examples: Mapping[Verdict, Sequence[str]]) -> tuple[Finding, ...]:
    """Counts what was left out, kind by kind."""
    return tuple(
        Finding(verdict.name.lower(), ledger.count(verdict), tuple(examples.get(verdict, ()))) for verdict in WORDS
    )


def find_origins(ledger: Ledger, sources: Sequence[str], weights: Sequence[float]) -> tuple[Origin, ...]:
    """Counts the training pairs of each source, where there are several."""
    counts = np.bincount(ledger.origins[ledger.places(Verdict.TRAIN)], minlength=len(sources)).tolist()
    each = zip(sources, counts, weights, strict=True)
    return tuple(Origin(*origin) for origin in each) if len(sources) > 1 else ()


def write_report(report: DataReport, path: Path) -> None:
    """Writes a report as JSON."""
    path.write_text(json.dumps(asdict(report), ensure_ascii=False, indent=1), encoding="utf-8")


def read_report(path: Path) -> DataReport:
    """Reads what `write_report` wrote."""
    try:
        given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        left_out = (Finding(**finding | {"examples": tuple(finding["examples"])}) for finding in given.pop("left_out"))
        origins = tuple(Origin(**origin) for origin in given.pop("origins"))
        return DataReport(left_out=tuple(left_out), origins=origins, **given)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: a report must be whole, got {error!r}; delete its folder to make it anew") from error
