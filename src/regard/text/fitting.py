"""Pairs as ids, and whether they fit into a model."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from regard.config import TextSettings
from regard.text.ledger import Verdict
from regard.text.pair import Pair
from regard.text.tokenizer import Tokenizer

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
