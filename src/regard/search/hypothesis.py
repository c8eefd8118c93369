"""Hypotheses, partial paths, length limits, forced prefixes."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum

import numpy as np
from jaxtyping import Bool, Float, Int

from regard.batch import Source
from regard.config import DecodeSettings
from regard.model import Seq2Seq
from regard.padding import BOS, EOS, PAD


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


@dataclass(frozen=True, eq=False)
class Prefix:
    """Forced tokens of some sentences, PAD where the model is free."""

    ids: Int[np.ndarray, "B P"]
    lengths: Int[np.ndarray, " B"]

    def at(self, step: int, sentences: Int[np.ndarray, " M"], n_hypotheses: int) -> Int[np.ndarray, " R"] | None:
        """Gives the token that each hypothesis of these sentences must say now; None where all are free."""
        if step >= self.ids.shape[1]:
            return None
        return self.ids[sentences, step].repeat(n_hypotheses)


def make_prefix(prefix: Sequence[Sequence[int]] | None, n_sentences: int) -> Prefix:
    """Checks and pads one prefix, which may be empty, for each sentence; None forces nothing."""
    given = [[]] * n_sentences if prefix is None else prefix
    if len(given) != n_sentences:
        raise ValueError(f"there must be one prefix for each sentence, got {len(given)} for {n_sentences}")
    for i, ids in enumerate(given):
        if wrong := [token for token in ids if token in {PAD, BOS, EOS}]:
            raise ValueError(
                f"a prefix must hold pieces only, without PAD, BOS and EOS, got id {wrong[0]} in prefix {i}"
            )
    lengths = [len(ids) for ids in given]
    width = max(lengths, default=0)
    padded = [[*ids, *[PAD] * (width - len(ids))] for ids in given]
    return Prefix(np.array(padded, dtype=np.int64).reshape(n_sentences, width), np.array(lengths, dtype=np.int64))


def max_lengths(model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: Prefix) -> Int[np.ndarray, " B"]:
    """Gives the tokens that each target may have: `max_ratio` times its source's and `max_extra`, EOS counted in both.

    A forced prefix always has room for one token after it. No target is longer than the model's positions reach.
    """
    if settings.max_ratio < 0 or settings.max_extra < 0:
        given = f"{settings.max_ratio} and {settings.max_extra}"
        raise ValueError(f"max_ratio and max_extra must be 0 or more, got {given}")
    by_source = (src.lengths.cpu().numpy() * settings.max_ratio).astype(np.int64) + settings.max_extra
    wanted = np.maximum(by_source, prefix.lengths + 1)
    return wanted if model.limit is None else np.minimum(wanted, model.limit)


@dataclass(frozen=True, eq=False)
class Paths:
    """N hypotheses for each of the sentences that are left, all of one length, those of one sentence in a row.

    Each knows its last token and whose continuation it is, so a step costs the same however much was written. These
    are a few numbers, kept with NumPy: a call of PyTorch's takes longer than all that is done with them here.
    """

    sentences: Int[np.ndarray, " B"]  # which of the sentences that were given
    limits: Int[np.ndarray, " B"]  # tokens that their targets may have
    tokens: Int[np.ndarray, "B N"]  # the last one
    gains: Float[np.ndarray, "B N"]  # its log-probability
    totals: Float[np.ndarray, "B N"]  # and that of all; −∞ is a place that no hypothesis holds
    rows: Int[np.ndarray, "B N"]  # the rows of `before` that these continue
    before: "Paths | None"  # None where nothing was written yet
    length: int  # tokens written

    def last(self) -> Int[np.ndarray, " R"]:
        """Gives the token that each hypothesis ends with, for the model to read."""
        return self.tokens.flatten()

    def extend(
        self, tokens: Int[np.ndarray, "B N"], gains: Float[np.ndarray, "B N"], rows: Int[np.ndarray, "B N"]
    ) -> "Paths":
        """Continues some rows, each of the sentence that it stands in, by one token."""
        totals = self.totals.ravel()[rows] + gains
        return Paths(self.sentences, self.limits, tokens, gains, totals, rows, self, self.length + 1)

    def keep(self, places: Int[np.ndarray, " M"]) -> "Paths":
        """Goes on with some sentences only."""
        kept = (self.sentences, self.limits, self.tokens, self.gains, self.totals, self.rows)
        sentences, limits, tokens, gains, totals, rows = (x[places] for x in kept)
        return Paths(sentences, limits, tokens, gains, totals, rows, self.before, self.length)

    def hypotheses(self, places: Int[np.ndarray, " M"], length_penalty: float) -> list[list[Hypothesis]]:
        """Turns what stands at some places into hypotheses, each up to its EOS if it has one."""
        held = self.totals[places] != -np.inf
        tokens, gains = (x.tolist() for x in self._written(places, held))
        made = (make_hypothesis(*one, length_penalty) for one in zip(tokens, gains, strict=True))
        return [list(islice(made, n)) for n in held.sum(1).tolist()]

    def _written(
        self, places: Int[np.ndarray, " M"], held: Bool[np.ndarray, "M N"]
    ) -> tuple[Int[np.ndarray, "H T"], Float[np.ndarray, "H T"]]:
        """Goes back from some hypotheses to their beginnings."""
        n_hypotheses = self.totals.shape[1]
        rows = (places[:, None] * n_hypotheses + np.arange(n_hypotheses))[held]
        tokens, gains = np.empty((len(rows), self.length), np.int64), np.empty((len(rows), self.length))
        paths = self
        while paths.before is not None:
            tokens[:, paths.length - 1], gains[:, paths.length - 1] = (
                paths.tokens.ravel()[rows],
                paths.gains.ravel()[rows],
            )
            rows, paths = paths.rows.ravel()[rows], paths.before
        return tokens, gains


def first_paths(limits: Int[np.ndarray, " B"], n_hypotheses: int) -> Paths:
    """Lets all hypotheses begin with BOS."""
    B = len(limits)
    nothing = np.zeros((B, n_hypotheses))
    rows = np.arange(B * n_hypotheses).reshape(B, n_hypotheses)
    return Paths(np.arange(B), limits, np.full_like(rows, BOS), nothing, nothing.copy(), rows, None, 0)
