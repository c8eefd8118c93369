"""Hypotheses, finished, in progress and traced back from an engine's history; repeats, length limits, prefixes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum

from regard.config import DecodeSettings
from regard.padding import BOS, EOS, PAD, Ids
from regard.shapes import Array, Bool, Float, Int, np


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


def make_hypothesis(tokens: Sequence[int], log_probs: Sequence[float], length_penalty: float) -> Hypothesis:
    """Return the hypothesis of the tokens up to the first EOS, each with its log-probability."""
    finished = EOS in tokens
    n = tokens.index(EOS) if finished else len(tokens)
    counted = list(log_probs[: n + finished])
    log_prob = fsum(counted)
    return Hypothesis(list(tokens[:n]), normalised(log_prob, len(counted), length_penalty), log_prob, counted, finished)


def normalised(log_prob: float, length: int, length_penalty: float) -> float:
    """Return the score by which hypotheses of different lengths compare."""
    return log_prob / length**length_penalty


def ranked(hypotheses: list[Hypothesis], n_best: int, longest: int | None = None) -> list[Hypothesis]:
    """Return the best, finished ones before all others; so long ones count as finished where a length is given."""
    last = [not each.finished and len(each.ids) != longest for each in hypotheses]
    order = sorted(range(len(hypotheses)), key=lambda i: (last[i], -hypotheses[i].score))
    return [hypotheses[i] for i in order[:n_best]]


LONGEST_BLOCK = 24  # tokens of a block that is looked for
USUAL = 3.0  # times in a row that a block may stand in any target; a single token twice as often


def longest_run(ids: Ids) -> float:
    """Return how often a block of tokens stands in a row at most; for a single token, half of it."""
    most = 1.0
    for period in range(1, min(LONGEST_BLOCK, len(ids) // 2) + 1):
        same = 0
        for i in range(period, len(ids)):
            same = same + 1 if ids[i] == ids[i - period] else 0
            if same >= period:
                most = max(most, count_repeats(same, period))
    return most


def count_repeats(same: int, period: int) -> float:
    """Return the repeats in a stretch of which the last `same` tokens stand a period earlier too."""
    return (same / period + 1) / (2 if period == 1 else 1)


def allowed_run(source: Ids) -> float:
    """Return how often a block may stand in a row in the target of a source: somewhat more often than there."""
    return max(USUAL, longest_run(source) + 1)


def is_loop(source: Ids, target: Ids) -> bool:
    """Tell whether a target repeats itself as its source does not."""
    return longest_run(target) > allowed_run(source)


@dataclass(frozen=True, eq=False)
class Prefix:
    """Forced tokens of some sentences, PAD where the model is free."""

    ids: Int[Array, "B P"]
    lengths: Int[Array, " B"]

    def at(self, step: int, sentences: Int[Array, " M"], n_hypotheses: int) -> Int[Array, " R"] | None:
        """Return the forced token of each hypothesis of these sentences at a step; None where all are free."""
        if step >= self.ids.shape[1]:
            return None
        return self.ids[sentences, step].repeat(n_hypotheses)


def make_prefix(prefix: Sequence[Ids] | None, n_sentences: int, first: int | None = None) -> Prefix:
    """Check and pad one prefix, which may be empty, for each sentence; None forces nothing.

    All begin with the first token, where there is one.
    """
    given = [[]] * n_sentences if prefix is None else prefix
    if len(given) != n_sentences:
        raise ValueError(f"there must be one prefix for each sentence, got {len(given)} for {n_sentences}")
    for i, ids in enumerate(given):
        if wrong := [token for token in ids if token in {PAD, BOS, EOS}]:
            raise ValueError(
                f"a prefix must hold tokens of text, without PAD, BOS and EOS, got id {wrong[0]} in prefix {i}"
            )
    given = given if first is None else [[first, *ids[list(ids[:1]) == [first] :]] for ids in given]
    lengths = [len(ids) for ids in given]
    width = max(lengths, default=0)
    padded = [[*ids, *[PAD] * (width - len(ids))] for ids in given]
    return Prefix(np.array(padded, dtype=np.int64).reshape(n_sentences, width), np.array(lengths, dtype=np.int64))


def max_lengths(
    sources: Sequence[Ids], settings: DecodeSettings, limit: int | None, prefix: Prefix | None = None
) -> Int[Array, " B"]:
    """Return the most tokens of each target: `max_ratio` times its source's and `max_extra`, EOS counted in both.

    A forced prefix always has room for one token after it. No target is longer than the model's positions reach.
    """
    lengths = np.array(free_lengths(sources, settings), dtype=np.int64)
    lengths = lengths if prefix is None else np.maximum(lengths, prefix.lengths + 1)
    return lengths if limit is None else np.minimum(lengths, limit)


def free_lengths(sources: Sequence[Ids], settings: DecodeSettings) -> list[int]:
    """Return the most tokens that each source allows."""
    if settings.max_ratio < 0 or settings.max_extra < 0:
        given = f"{settings.max_ratio} and {settings.max_extra}"
        raise ValueError(f"max_ratio and max_extra must be 0 or more, got {given}")
    return [int((len(source) + 1) * settings.max_ratio) + settings.max_extra for source in sources]


@dataclass(frozen=True, eq=False)
class PartialHypotheses:
    """N hypotheses for each of the sentences that are left, all of one length, those of one sentence in a row.

    Each knows its last token and which it continues, so a step costs the same however much was written.
    """

    sentences: Int[Array, " B"]  # which of the sentences that were given
    limits: Int[Array, " B"]  # tokens that their targets may have
    tokens: Int[Array, "B N"]  # the last one
    log_probs: Float[Array, "B N"]  # of the last token
    totals: Float[Array, "B N"]  # and of all; −∞ is a row that holds no hypothesis
    rows: Int[Array, "B N"]  # the rows of `before` that these continue
    before: "PartialHypotheses | None"  # None at the beginning
    length: int  # tokens written

    def last(self) -> Int[Array, " R"]:
        """Return the token that each hypothesis ends with, for the model to read."""
        return self.tokens.flatten()

    def extend(
        self, tokens: Int[Array, "B N"], log_probs: Float[Array, "B N"], rows: Int[Array, "B N"]
    ) -> "PartialHypotheses":
        """Continue some rows, each of its own sentence, by one token."""
        totals = self.totals.ravel()[rows] + log_probs
        return PartialHypotheses(self.sentences, self.limits, tokens, log_probs, totals, rows, self, self.length + 1)

    def keep(self, indices: Int[Array, " M"]) -> "PartialHypotheses":
        """Go on with some sentences only."""
        arrays = (self.sentences, self.limits, self.tokens, self.log_probs, self.totals, self.rows)
        sentences, limits, tokens, log_probs, totals, rows = (x[indices] for x in arrays)
        return PartialHypotheses(sentences, limits, tokens, log_probs, totals, rows, self.before, self.length)

    def hypotheses(self, indices: Int[Array, " M"], length_penalty: float) -> list[list[Hypothesis]]:
        """Return the hypotheses of some sentences, each up to its EOS if it has one."""
        held = self.totals[indices] != -np.inf
        tokens, log_probs = (x.tolist() for x in self._trace_back(indices, held))
        each = (make_hypothesis(*one, length_penalty) for one in zip(tokens, log_probs, strict=True))
        return [list(islice(each, n)) for n in held.sum(1).tolist()]

    def collect(self, results: list[list[Hypothesis]], indices: Int[Array, " M"], length_penalty: float) -> None:
        """Add the hypotheses of some sentences to the results, which are those of all that were given."""
        found = self.hypotheses(indices, length_penalty)
        for sentence, hypotheses in zip(self.sentences[indices].tolist(), found, strict=True):
            results[sentence] += hypotheses

    def _trace_back(
        self, indices: Int[Array, " M"], held: Bool[Array, "M N"]
    ) -> tuple[Int[Array, "H T"], Float[Array, "H T"]]:
        N = self.totals.shape[1]
        rows = (indices[:, None] * N + np.arange(N))[held]
        tokens, log_probs = np.empty((len(rows), self.length), np.int64), np.empty((len(rows), self.length))
        partial = self
        while partial.before is not None:
            at = partial.length - 1
            tokens[:, at], log_probs[:, at] = partial.tokens.ravel()[rows], partial.log_probs.ravel()[rows]
            rows, partial = partial.rows.ravel()[rows], partial.before
        return tokens, log_probs


def begin(limits: Int[Array, " B"], n_hypotheses: int) -> PartialHypotheses:
    """Let all hypotheses begin with BOS."""
    B = len(limits)
    zeros = np.zeros((B, n_hypotheses))
    rows = np.arange(B * n_hypotheses).reshape(B, n_hypotheses)
    return PartialHypotheses(np.arange(B), limits, np.full_like(rows, BOS), zeros, zeros.copy(), rows, None, 0)


# What is kept of each step of each sentence, (M, T, N) each: the token of every hypothesis and which one it continues;
# of those that ended there, their parents. Log-probabilities of tokens and of wholes, −∞ where nothing ended.
INTEGERS = ("tokens", "parents", "end_parents")
REALS = ("log_probs", "end_log_probs", "totals", "end_totals")
History = dict[str, Array]


def best_hypotheses(
    history: History, lengths: Int[Array, " M"], settings: DecodeSettings, limits: Int[Array, " M"] | None = None
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each sentence, unfinished ones where too few ended or they rank among those."""
    M, longest = len(lengths), [None] * len(lengths)
    if settings.at_limit == "among" and limits is not None:
        longest = limits.tolist()
    results: list[list[Hypothesis]] = [[] for _ in range(M)]
    for sentence, hypothesis in _finished(history, lengths, settings):
        results[sentence].append(hypothesis)
    joining = [i for i in range(M) if len(results[i]) < settings.n_best or lengths[i] == longest[i]]
    few = np.array(joining, np.int64)
    for sentence, hypothesis in _unfinished(history, few, lengths[few], settings):
        results[sentence].append(hypothesis)
    return [ranked(each, settings.n_best, limit) for each, limit in zip(results, longest, strict=True)]


def _finished(
    history: History, lengths: Int[Array, " M"], settings: DecodeSettings
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the best hypotheses that ended, each with the index of its sentence."""
    M, T, N = history["tokens"].shape
    steps = np.arange(T)
    within = (steps < lengths[:, None])[:, :, None]
    scores = np.where(within, history["end_totals"], -np.inf) / (steps[:, None] + 1.0) ** settings.length_penalty
    best = np.argsort(-scores.reshape(M, T * N), axis=1, kind="stable")[:, : settings.n_best]
    sentences, ranks = np.nonzero(np.take_along_axis(scores.reshape(M, T * N), best, 1) > -np.inf)
    step, row = np.divmod(best[sentences, ranks], N)
    at = (sentences, step, row)
    ids, log_probs = trace_back(history, sentences, step, history["end_parents"][at])
    columns = (sentences, step, ids, log_probs, history["end_log_probs"][at])
    for sentence, n, tokens, values, last in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis([*tokens[:n], EOS], [*values[:n], last], settings.length_penalty)


def _unfinished(
    history: History, sentences: Int[Array, " M"], lengths: Int[Array, " M"], settings: DecodeSettings
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the best hypotheses of some sentences that were in progress when each was final."""
    totals = history["totals"][sentences, lengths - 1]  # largest first, since that is how a search goes on
    which, row = np.nonzero(totals[:, : settings.n_best] > -np.inf)
    ids, log_probs = trace_back(history, sentences[which], lengths[which], row)
    columns = (sentences[which], lengths[which], ids, log_probs)
    for sentence, n, tokens, values in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis(tokens[:n], values[:n], settings.length_penalty)


def trace_back(
    history: History, sentences: Int[Array, " H"], lengths: Int[Array, " H"], rows: Int[Array, " H"]
) -> tuple[Int[Array, "H T"], Float[Array, "H T"]]:
    """Return the tokens of hypotheses and their log-probabilities, from the row of each at its length."""
    T = int(lengths.max(initial=0))
    _, n_steps, N = history["tokens"].shape
    ids, log_probs = np.zeros((T, len(rows)), np.int64), np.zeros((T, len(rows)))
    tokens, values, parents = (history[name].reshape(-1) for name in ("tokens", "log_probs", "parents"))
    first, rows = sentences * (n_steps * N), rows.astype(np.int64)
    for step in range(T - 1, -1, -1):
        at = first + step * N + rows
        ids[step], log_probs[step] = tokens.take(at), values.take(at)
        rows = np.where(step < lengths, parents.take(at), rows)  # one that is shorter stays where it was
    return ids.T, log_probs.T
