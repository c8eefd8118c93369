"""What a user gets for one line of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from regard.decode.hypothesis import Hypothesis, normalised
from regard.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Alternative:
    """One of the translations that were found for a text."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """The best translation of a text, the pieces it was written in and read in, and all that were found, best first."""

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alternatives: list[Alternative]


def make_translation(
    sources: Sequence[Sequence[int]],
    found: Sequence[Sequence[Hypothesis]],
    tokenizer: Tokenizer,
    separator: str,
    length_penalty: float,
) -> Translation:
    """Joins what was found for the parts of a text: best with best, second with second; no parts are an empty text.

    A part of which fewer were found takes part with its last. The score is that of the parts as one hypothesis.
    """
    source_tokens = tokenizer.pieces([token for ids in sources for token in ids], "src")
    if not found:
        return Translation("", 0.0, [], source_tokens, [])
    ranks = range(max(len(hypotheses) for hypotheses in found))
    joint = [[hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found] for rank in ranks]
    texts = [separator.join(text for part in parts if (text := tokenizer.decode(part.ids))) for parts in joint]
    scores = [_score(parts, length_penalty) for parts in joint]
    tokens = tokenizer.pieces([token for part in joint[0] for token in part.ids], "tgt")
    alternatives = [Alternative(text, score) for text, score in zip(texts, scores, strict=True)]
    return Translation(texts[0], scores[0], tokens, source_tokens, alternatives)


def _score(parts: Sequence[Hypothesis], length_penalty: float) -> float:
    length = sum(len(part.token_log_probs) for part in parts)
    return normalised(fsum(part.log_prob for part in parts), length, length_penalty)
