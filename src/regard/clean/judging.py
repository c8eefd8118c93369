"""What is thought of each pair of a chunk, and what is decided."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from regard.clean.duplicates import exact_key, near_key
from regard.clean.learning import HALVES, CorpusModel, open_evidence, open_identifier
from regard.clean.noise import KINDS
from regard.clean.reading import ParsedLine, RawChunk, parse
from regard.clean.rules import CODES, broken_rule
from regard.shapes import Array, Bool, Float

# Log-odds that language and noise must reach together for a text to be in the wrong language: a name or a single word
# often looks like another language's.
FOREIGN = 3.0
LIKELIER = 1.0  # log-odds that language must reach by itself
SUPPORT = 3.0  # log-odds of noise, for or against it, that count at most; where nothing was learned, against it


@dataclass(frozen=True, eq=False)
class Judgement:
    """The pairs of a chunk in order, the code of the rule that each breaks (0: none), and what it looks like."""

    lines: list[ParsedLine]
    codes: NDArray[np.uint8]
    posteriors: Float[Array, "pairs classes"]  # that it is as it should be, and of each of KINDS
    odds: Float[Array, "pairs 2"]  # log-odds of the likeliest other language of each side
    keys: NDArray[np.uint64]  # of the pair, and of its near-duplicates
    costs: Float[Array, "pairs 2"]  # of the models of two directions, in nats a token; NaN where they were not asked

    @property
    def noise(self) -> Float[Array, " pairs"]:
        """The probability that a pair is noise."""
        return 1 - self.posteriors[:, 0]


def judge(model: CorpusModel, chunk: RawChunk) -> Judgement:
    """Read a chunk, apply the rules, and measure those pairs that break none."""
    lines = parse(chunk)
    codes = np.array([_code(line, model) for line in lines], np.uint8)
    good = np.flatnonzero(codes == 0)
    posteriors = np.zeros((len(lines), len(KINDS) + 1))
    posteriors[:, 0] = 1
    odds, keys = np.zeros((len(lines), 2)), np.zeros((2, len(lines)), np.uint64)
    pairs = [(lines[i].src, lines[i].tgt) for i in good]
    for place, own in enumerate(zip(*pairs, strict=True) if pairs else ()):
        if (expected := model.languages[place]) is not None:
            identifier = open_identifier()
            odds[good, place] = [identifier.odds(text, expected) for text in own]
    keys[0, good] = [exact_key(*pair) for pair in pairs]
    keys[1, good] = [near_key(*pair) for pair in pairs]
    if model.folder is not None:
        for half in HALVES:
            own = good[(keys[1, good] & 1) == half]
            evidence = open_evidence(model.folder, 1 - half)
            features = evidence.measure([lines[i].src for i in own], [lines[i].tgt for i in own])
            posteriors[own] = model.classifiers[1 - half].posteriors(features)
    return Judgement(lines, codes, posteriors, odds, keys, np.full((len(lines), 2), np.nan))


def _code(line: ParsedLine, model: CorpusModel) -> int:
    if line.problem is not None:
        return CODES["unreadable"]
    settings = model.settings
    reason = broken_rule(line.src, line.tgt, line.raw, settings.max_chars, model.lengths, settings.skip)
    return 0 if reason is None else CODES[reason]


def decide(judged: Judgement, threshold: float, skip: frozenset[str]) -> Judgement:
    """Give the pairs that break no rule the code of what they look like, where that is likely enough."""
    codes = judged.codes.copy()
    posteriors = without(judged.posteriors, skip)
    likely = np.array([CODES[kind] for kind in KINDS], np.uint8)[posteriors[:, 1:].argmax(1)]
    unread = (likely == CODES["language"]) & (judged.odds.max(1) <= LIKELIER)
    likely[unread] = CODES["misaligned"]  # words that nobody knows, of a language that may well be the right one
    noisy = (codes == 0) & (1 - posteriors[:, 0] > threshold)
    if "language" not in skip:
        codes[(codes == 0) & foreign(judged)] = CODES["language"]
    codes[noisy & (codes == 0)] = likely[noisy & (codes == 0)]
    return replace(judged, codes=codes)


def foreign(judged: Judgement) -> Bool[Array, " pairs"]:
    """Tell which pairs have a side in another language."""
    noise = np.clip(judged.noise, 1e-6, 1 - 1e-6)
    support = np.clip(np.log(noise / (1 - noise)), -SUPPORT, SUPPORT)
    odds = judged.odds.max(1)
    return (odds > LIKELIER) & (odds + support > FOREIGN)


def without(posteriors: Float[Array, "pairs classes"], skip: frozenset[str]) -> Float[Array, "pairs classes"]:
    """Count the kinds of noise that are skipped as no noise."""
    kept = np.array([False, *(kind in skip for kind in KINDS)])
    found = np.where(kept, 0.0, posteriors)
    found[:, 0] += posteriors[:, kept].sum(1)
    return found
