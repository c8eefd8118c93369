"""From the record of a search on the device to hypotheses: the best ends, followed back to their beginnings."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from regard.batch import EOS
from regard.config import DecodeSettings
from regard.decode.hypothesis import Hypothesis, make_hypothesis, ranked

Written = dict[str, np.ndarray]  # the columns of a `Record`, (M, T, N) each
Found = Iterator[tuple[int, Hypothesis]]


def best_hypotheses(
    written: Written, lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> list[list[Hypothesis]]:
    """Gives the `n_best` hypotheses of each sentence, unfinished ones where too few ended."""
    M = len(lengths)
    found: list[list[Hypothesis]] = [[] for _ in range(M)]
    for sentence, hypothesis in _ended(written, lengths, settings):
        found[sentence].append(hypothesis)
    few = np.array([i for i in range(M) if len(found[i]) < settings.n_best], np.int64)
    for sentence, hypothesis in _unfinished(written, few, lengths[few], settings):
        found[sentence].append(hypothesis)
    return [ranked(hypotheses, settings.n_best) for hypotheses in found]


def made_hypotheses(
    tokens: Int[np.ndarray, "M n_best T1"], gains: Float[np.ndarray, "M n_best T"], settings: DecodeSettings
) -> list[list[Hypothesis]]:
    """Makes the hypotheses that `kernel.follow_back` found."""
    counts = tokens[:, :, 0]
    longest = int(counts.max(initial=0))
    columns = (counts, tokens[:, :, 1 : 1 + longest], gains[:, :, :longest])
    return [
        [
            make_hypothesis(said[:n], gained[:n], settings.length_penalty)
            for n, said, gained in zip(*each, strict=True)
            if n
        ]
        for each in zip(*(x.tolist() for x in columns), strict=True)
    ]


def _ended(written: Written, lengths: Int[np.ndarray, " M"], settings: DecodeSettings) -> Found:
    """Gives the best hypotheses that ended, each with the number of its sentence."""
    M, T, N = written["tokens"].shape
    ages = np.arange(T)
    within = (ages < lengths[:, None])[:, :, None]
    scores = np.where(within, written["end_totals"], -np.inf) / (ages[:, None] + 1.0) ** settings.length_penalty
    chosen = np.argsort(-scores.reshape(M, T * N), axis=1, kind="stable")[:, : settings.n_best]
    sentences, places = np.nonzero(np.take_along_axis(scores.reshape(M, T * N), chosen, 1) > -np.inf)
    age, rank = np.divmod(chosen[sentences, places], N)
    at = (sentences, age, rank)
    ids, gains = followed_back(written, sentences, age, written["end_parents"][at])
    columns = (sentences, age, ids, gains, written["end_gains"][at])
    for sentence, n, tokens, gained, last in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis([*tokens[:n], EOS], [*gained[:n], last], settings.length_penalty)


def _unfinished(
    written: Written, sentences: Int[np.ndarray, " M"], lengths: Int[np.ndarray, " M"], settings: DecodeSettings
) -> Found:
    """Gives the best hypotheses of some sentences that were being written when each was over."""
    totals = written["totals"][sentences, lengths - 1]  # largest first, since that is how a search goes on
    which, rank = np.nonzero(totals[:, : settings.n_best] > -np.inf)
    ids, gains = followed_back(written, sentences[which], lengths[which], rank)
    columns = (sentences[which], lengths[which], ids, gains)
    for sentence, n, tokens, gained in zip(*(x.tolist() for x in columns), strict=True):
        yield sentence, make_hypothesis(tokens[:n], gained[:n], settings.length_penalty)


def followed_back(
    written: Written, sentences: Int[np.ndarray, " H"], lengths: Int[np.ndarray, " H"], rows: Int[np.ndarray, " H"]
) -> tuple[Int[np.ndarray, "H T"], Float[np.ndarray, "H T"]]:
    """Gives the tokens of hypotheses and what each gained, from where each stood at its length."""
    T = int(lengths.max(initial=0))
    _, ages, N = written["tokens"].shape
    ids, gains = np.zeros((T, len(rows)), np.int64), np.zeros((T, len(rows)))
    tokens, gained, parents = (written[name].reshape(-1) for name in ("tokens", "gains", "parents"))
    first, rows = sentences * (ages * N), rows.astype(np.int64)
    for age in range(T - 1, -1, -1):
        at = first + age * N + rows
        ids[age], gains[age] = tokens.take(at), gained.take(at)
        rows = np.where(age < lengths, parents.take(at), rows)  # one that is shorter stays where it stood
    return ids.T, gains.T
