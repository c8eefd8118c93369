"""What a sample of a corpus teaches about it: languages, lengths, which words go together, what noise looks like.

The sample is divided into two halves by a hash that near-duplicates share. Each half is judged by what the other one
taught, as is the whole corpus later: a pair never speaks for itself.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import islice
from pathlib import Path

import numpy as np

from regard.clean.classifier import ClassifierFit, NoiseClassifier, fit_classifier
from regard.clean.duplicates import near_key
from regard.clean.evidence import Evidence, encode, learn_evidence, load_evidence, save_evidence
from regard.clean.language import LanguageIdentifier
from regard.clean.lengths import LengthLaw, fit_lengths
from regard.clean.lexicon import fitting
from regard.clean.noise import KINDS, Texts, make_noise
from regard.clean.reading import RawChunk, digest, parse
from regard.clean.rules import broken_rule
from regard.clean.workers import Workers
from regard.config import TextSettings
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer
from regard.shapes import Array, Float

SAMPLE = 240_000  # lines that a corpus is learned from
PIECES = 12_000  # of each side
TOKENIZED = 40_000  # pairs that the pieces are learned from
EXAMPLES = 30_000  # pairs of each half by which its classifier learns what a pair looks like
FEWEST = 2000  # pairs, below which no classifier is learned
HALVES = (0, 1)
UNSEEN = "misaligned and truncated pairs are not looked for"
MAX_CHARS = 1000

Log = Callable[[str], None]


@dataclass(frozen=True)
class CleanSettings:
    """Which pairs are to be dropped."""

    languages: tuple[str | None, str | None] = (None, None)  # of the sides; None is guessed
    skip: frozenset[str] = frozenset()  # reasons for which nothing is dropped
    max_chars: int = MAX_CHARS  # of a side
    threshold: float = 0.5  # probability of noise from which a pair is dropped
    seed: int = 0


@dataclass(frozen=True, eq=False)
class CorpusModel:
    """What is known of a corpus; the large tables lie in a folder."""

    settings: CleanSettings
    lengths: LengthLaw
    languages: tuple[str | None, str | None] = (None, None)  # labels of py3langid; None is not checked
    folder: Path | None = None  # of the evidence, if there were enough pairs to learn from
    classifiers: tuple[NoiseClassifier, ...] = ()  # that learned from either half
    shares: Mapping[str, float] = field(default_factory=dict)  # of each kind of noise in the sample


def take_sample(chunks: Iterable[RawChunk], size: int = SAMPLE) -> tuple[list[RawChunk], int]:
    """Return a uniform sample of the distinct lines, those with the smallest hashes, and the number of all lines."""
    kept: list[tuple[int, RawChunk]] = []
    limit, n = 1 << 64, 0
    for chunk in chunks:
        n += len(chunk.lines)
        for line in chunk.lines:
            if line is not None and (key := digest(line)) < limit:
                kept.append((key, RawChunk(chunk.name, 0, (line,), chunk.languages)))
        if len(kept) > 2 * size:
            kept = _smallest(kept, size)
            limit = kept[-1][0]
    return [chunk for _, chunk in _smallest(kept, size)], n


def _smallest(kept: list[tuple[int, RawChunk]], size: int) -> list[tuple[int, RawChunk]]:
    distinct = dict(kept)  # by the hash
    return [(key, distinct[key]) for key in sorted(distinct)[:size]]


def learn(
    sample: Sequence[RawChunk], settings: CleanSettings, workers: Workers, folder: Path, log: Log
) -> tuple[CorpusModel, tuple[list[Texts], ...]]:
    """Learn from a sample; tables go to the folder. Return also some pairs of each half, which the rules keep."""
    chunks = [list(sample[at : at + 4096]) for at in range(0, len(sample), 4096)]
    texts = [pair for some in workers(_read_texts, chunks) for pair in some]
    lengths = fit_lengths([(len(src), len(tgt)) for src, tgt in texts])
    model = CorpusModel(settings, lengths, find_languages(texts, settings))
    if {*KINDS} <= settings.skip:
        return model, ()
    halves = _divide(texts, model, workers)
    n = sum(map(len, halves))
    if n < FEWEST:
        log(f"{n:,} different pairs are too few to learn from (at least {FEWEST:,}): {UNSEEN}")
        return model, ()
    log(f"learning from {n:,} pairs which words go together")
    _write_tokenizer(halves, folder, settings.seed)
    list(workers(partial(_learn_half, folder), [(half, halves[half]) for half in HALVES]))
    log("learning what noise looks like")
    jobs = [(half, halves[half][:EXAMPLES]) for half in HALVES]
    fitted = list(workers(partial(_fit_half, model, folder), jobs))
    shares = np.mean([each.shares for each in fitted], 0).tolist()
    classifiers, named = tuple(each.classifier for each in fitted), {k: shares[i] for i, k in enumerate(KINDS)}
    examples = tuple(half[:EXAMPLES] for half in halves)
    return CorpusModel(settings, lengths, model.languages, folder, classifiers, named), examples


def _divide(texts: Sequence[Texts], model: CorpusModel, workers: Workers) -> tuple[list[Texts], list[Texts]]:
    """Return the halves of a sample without what the rules drop, and the first of near-duplicates only."""
    parts = [texts[at : at + 4096] for at in range(0, len(texts), 4096)]
    halves: tuple[list[Texts], list[Texts]] = [], []
    seen: set[int] = set()
    for pair, key in (one for some in workers(partial(usable, model), parts) for one in some):
        if key not in seen:
            seen.add(key)
            halves[key & 1].append(pair)
    return halves


def find_languages(texts: Sequence[Texts], settings: CleanSettings) -> tuple[str | None, str | None]:
    """Return the language of each side, as asked or guessed."""
    if "language" in settings.skip:
        return None, None
    identifier = open_identifier()
    src, tgt = (
        identifier.guess([pair[side] for pair in texts[:20_000]]) if code is None else identifier.name(code)
        for side, code in enumerate(settings.languages)
    )
    return src, tgt


def _read_texts(chunks: Sequence[RawChunk]) -> list[Texts]:
    lines = (line for chunk in chunks for line in parse(chunk))
    return [(line.src, line.tgt) for line in lines if line.problem is None and line.src and line.tgt]


def usable(model: CorpusModel, texts: Sequence[Texts]) -> list[tuple[Texts, int]]:
    """Return the pairs that no rule drops, with their near-duplicates' key."""
    rules = model.settings.max_chars, model.lengths, model.settings.skip
    good = [pair for pair in texts if broken_rule(*pair, "\t".join(pair), *rules) is None]
    return [(pair, near_key(*pair)) for pair in good]


def _write_tokenizer(halves: Sequence[Sequence[Texts]], folder: Path, seed: int) -> None:
    each = TOKENIZED // 2
    pairs = [(src.lower(), tgt.lower()) for half in halves for src, tgt in islice(half, each)]
    settings = TextSettings(vocab_size=PIECES, joint=False)
    train_tokenizer(pairs, settings, lambda _: None, seed).save(folder)


def _learn_half(folder: Path, job: tuple[int, list[Texts]]) -> None:
    half, pairs = job
    tokenizer = Tokenizer.load(folder)
    src, tgt = encode(tokenizer, [src for src, _ in pairs], [tgt for _, tgt in pairs])
    n = fitting(src, tgt)
    save_evidence(learn_evidence(tokenizer, src[:n], tgt[:n]), folder / str(half))


def _fit_half(model: CorpusModel, folder: Path, job: tuple[int, list[Texts]]) -> ClassifierFit:
    half, pairs = job
    evidence, seed = open_evidence(folder, 1 - half), model.settings.seed + half
    noise = make_noise(pairs, random.Random(seed))
    # Like the corpus, noise is seen without what the rules drop.
    left = [[pair for pair, _ in usable(model, noise[kind])] for kind in KINDS]
    return fit_classifier(measure_all(evidence, pairs), [measure_all(evidence, some) for some in left], seed)


def measure_all(evidence: Evidence, pairs: Sequence[Texts]) -> Float[Array, "pairs features"]:
    """Return the features of many pairs, measured some at a time."""
    parts = [pairs[at : at + 4096] for at in range(0, len(pairs), 4096)]
    return np.concatenate([evidence.measure([], []), *(evidence.measure(*zip(*part, strict=True)) for part in parts)])


@cache
def open_evidence(folder: Path, half: int) -> Evidence:
    """Open what a half taught, once in a process."""
    return load_evidence(Tokenizer.load(folder), folder / str(half))


@cache
def open_identifier() -> LanguageIdentifier:
    """Open the model of languages, once in a process: it takes half a second."""
    return LanguageIdentifier()
