"""One thing that a model may say: its tokens with their log-probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from regard.batch import EOS


@dataclass(frozen=True)
class Hypothesis:
    """A target sentence without BOS and EOS, finished where the model itself ended it.

    `token_log_probs` has one number for each id, those of a forced prefix included, and one for EOS where it finished;
    `log_prob` is their sum, and `score` is `log_prob / length ** length_penalty`, the length being their number.
    """

    ids: list[int]
    score: float
    log_prob: float
    token_log_probs: list[float]
    finished: bool


def make_hypothesis(tokens: Sequence[int], gains: Sequence[float], length_penalty: float) -> Hypothesis:
    """Makes a hypothesis of the tokens up to the first EOS, and of what each added to its log-probability."""
    finished = EOS in tokens
    n = tokens.index(EOS) if finished else len(tokens)
    counted = list(gains[: n + finished])
    log_prob = fsum(counted)
    return Hypothesis(list(tokens[:n]), normalised(log_prob, len(counted), length_penalty), log_prob, counted, finished)


def normalised(log_prob: float, length: int, length_penalty: float) -> float:
    """Gives the score by which hypotheses of different lengths compare."""
    return log_prob / length**length_penalty


def ranked(hypotheses: list[Hypothesis], n_best: int) -> list[Hypothesis]:
    """Gives the best, finished ones before all others."""
    return sorted(hypotheses, key=lambda each: (not each.finished, -each.score))[:n_best]
