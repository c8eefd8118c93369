"""From the history of a search that an engine ran to its hypotheses."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from regard.config import DecodeSettings
from regard.padding import EOS
from regard.search.hypothesis import Hypothesis, make_hypothesis, ranked

# What is kept of each step of each sentence, (M, T, N) each: the token of every hypothesis and which one it continues;
# of those that ended there, their parents. Log-probabilities of tokens and of wholes, −∞ where nothing ended.
INTEGERS = ("tokens", "parents", "end_parents")
REALS = ("log_probs", "end_log_probs", "totals", "end_totals")
History = dict[str, np.ndarray]


def best_hypotheses(
    history: History, lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> list[list[Hypothesis]]:
    """Return the `n_best` hypotheses of each sentence, unfinished ones where too few ended."""
    M = len(lengths)
    results: list[list[Hypothesis]] = [[] for _ in range(M)]
    for sentence, hypothesis in _finished(history, lengths, settings):
        results[sentence].append(hypothesis)
    few = np.array([i for i in range(M) if len(results[i]) < settings.n_best], np.int64)
    for sentence, hypothesis in _unfinished(history, few, lengths[few], settings):
        results[sentence].append(hypothesis)
    return [ranked(hypotheses, settings.n_best) for hypotheses in results]


def _finished(
    history: History, lengths: Int[np.ndarray, " M"], settings: DecodeSettings
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
    history: History, sentences: Int[np.ndarray, " M"], lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> Iterator[tuple[int, Hypothesis]]:
    """Yield the best hypotheses of some sentences that were in progress when each was final."""
    totals = history["totals"][sentences, lengths - 1]  # largest first, since that is how a search goes on
    which, row = np.nonzero(totals[:, : settings.n_best] > -np.inf)
    ids, log_probs = trace_back(history, sentences[which], lengths[which], row)
    columns = (sentences[which], lengths[which], ids, log_probs)
    for sentence, n, tokens, values in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis(tokens[:n], values[:n], settings.length_penalty)


def trace_back(
    history: History, sentences: Int[np.ndarray, " H"], lengths: Int[np.ndarray, " H"], rows: Int[np.ndarray, " H"]
) -> tuple[Int[np.ndarray, "H T"], Float[np.ndarray, "H T"]]:
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
