"""Beam search in NumPy: the reference."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from regard.batch import Source
from regard.config import DecodeSettings
from regard.model import Seq2Seq
from regard.model.seq2seq import Choices
from regard.padding import EOS
from regard.search.hypothesis import Hypothesis, Paths, first_paths, make_prefix, max_lengths, ranked
from regard.search.sampling import to_device


@dataclass(frozen=True, eq=False)
class Standing:
    """The best scores of finished hypotheses of each sentence, and how many have finished."""

    scores: Float[np.ndarray, "B M"]  # largest first, −∞ where fewer have finished
    n_finished: Int[np.ndarray, " B"]

    def add(self, closed: Paths, length_penalty: float) -> "Standing":
        """Counts hypotheses that end with this token."""
        more = np.concatenate([self.scores, closed.totals / closed.length**length_penalty], axis=1)
        n_more = (closed.totals != -np.inf).sum(1)
        return Standing(-np.sort(-more, axis=1)[:, : self.scores.shape[1]], self.n_finished + n_more)

    def keep(self, places: Int[np.ndarray, " M"]) -> "Standing":
        """Goes on with some sentences only."""
        return Standing(self.scores[places], self.n_finished[places])

    def decided(self, paths: Paths, beam: int, length_penalty: float) -> Bool[np.ndarray, " B"]:
        """Tells which sentences have `beam` ends, can find no better one, or have no room left.

        A log-probability never grows. Divided by a power of the length it is best at the longest length for a positive
        penalty, and at the next one otherwise.
        """
        length = paths.limits.astype(np.float64) if length_penalty > 0 else paths.length + 1
        bound = paths.totals.max(1) / length**length_penalty
        return (self.n_finished >= beam) | (bound <= self.scores[:, -1]) | (paths.limits <= paths.length)


def first_standing(paths: Paths, n_best: int) -> Standing:
    """Begins with nothing finished."""
    return Standing(np.full((len(paths.totals), n_best), -np.inf), np.zeros_like(paths.sentences))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations of each sentence's hypotheses by one token, the most probable first."""

    totals: Float[np.ndarray, "B C"]  # log-probability of the whole
    gains: Float[np.ndarray, "B C"]  # and of the token
    tokens: Int[np.ndarray, "B C"]
    rows: Int[np.ndarray, "B C"]  # the hypothesis it continues


@torch.inference_mode()
def search(
    model: Seq2Seq, src: Source, settings: DecodeSettings, prefix: list[list[int]] | None = None
) -> list[list[Hypothesis]]:
    """Keeps the `beam` most probable hypotheses at each step, and the ends it finds on the way.

    A hypothesis ends where EOS is among the `beam` best continuations. A sentence leaves the batch when it has `beam`
    ends, when nothing that is still being written can become better than its `n_best` ends, or at its limit; what is
    unfinished then ranks behind all ends. A step costs one of the model with `beam` rows for each sentence.
    """
    check(settings)
    B, N, device = len(src.lengths), settings.beam, src.ids.device
    forced = make_prefix(prefix, B)
    paths = _one_beginning(first_paths(max_lengths(model, src, settings, forced), N))
    standing = first_standing(paths, settings.n_best)
    state = model.start(src, N) if B else None
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    while state is not None:
        must = forced.at(paths.length, paths.sentences, N)
        # More than N + 1 continuations of one hypothesis are never needed: it may end, and go on in N ways.
        said, state = model.choices(
            to_device(paths.last(), device), state, None if must is None else to_device(must, device), N + 1
        )
        best = candidates(said, paths.totals)
        standing = _finish(found, paths, best, standing, settings)
        paths = advance(paths, best)
        over = standing.decided(paths, N, settings.length_penalty)
        left = np.flatnonzero(~over)
        state = state.reorder(to_device(paths.rows.flatten(), device)) if N > 1 and len(left) else state
        if len(left) < len(over):
            _close(found, paths, np.flatnonzero(over), settings)
            paths, standing = paths.keep(left), standing.keep(left)
            state = state.keep(to_device(left, device)) if len(left) else None
    return [ranked(hypotheses, settings.n_best) for hypotheses in found]


def candidates(said: Choices, totals: Float[np.ndarray, "B N"]) -> Candidates:
    """Gives the 2N best continuations: enough to go on with N, however many of them are ends."""
    B, N = totals.shape
    gains, tokens = (x.cpu().numpy() for x in (said.gains, said.tokens))  # (R, k)
    k = gains.shape[1]
    sums = totals.reshape(-1, 1) + gains
    at = np.argsort(-sums.reshape(B, N * k), axis=1, kind="stable")[:, : 2 * N]
    at += np.arange(0, B * N * k, N * k)[:, None]  # (B, 2N): where in all of them
    return Candidates(sums.ravel()[at], gains.ravel()[at], tokens.ravel()[at], at // k)


def ends(best: Candidates) -> Bool[np.ndarray, "B N"]:
    """Tells which of the first half of the continuations are ends."""
    N = best.tokens.shape[1] // 2
    return best.tokens[:, :N] == EOS


def advance(paths: Paths, best: Candidates) -> Paths:
    """Goes on with the N best continuations that are no ends: a hypothesis ends in one way, so N of the 2N are none."""
    B, N = paths.totals.shape
    is_end = best.tokens == EOS
    if not is_end.any():
        return paths.extend(best.tokens[:, :N], best.gains[:, :N], best.rows[:, :N])
    sentence, at = np.arange(B)[:, None], np.argsort(is_end, axis=1, kind="stable")[:, :N]
    return paths.extend(best.tokens[sentence, at], best.gains[sentence, at], best.rows[sentence, at])


def _one_beginning(paths: Paths) -> Paths:
    """Leaves one hypothesis of each sentence, since all begin alike."""
    paths.totals[:, 1:] = -np.inf
    return paths


def _finish(
    found: list[list[Hypothesis]], paths: Paths, best: Candidates, standing: Standing, settings: DecodeSettings
) -> Standing:
    """Collects the ends among the continuations."""
    ending = ends(best)
    if not ending.any():
        return standing
    N = ending.shape[1]
    closed = paths.extend(best.tokens[:, :N], best.gains[:, :N], best.rows[:, :N])
    closed.totals[~ending] = -np.inf
    _close(found, closed, np.flatnonzero(ending.any(1)), settings)
    return standing.add(closed, settings.length_penalty)


def _close(
    found: list[list[Hypothesis]], paths: Paths, places: Int[np.ndarray, " M"], settings: DecodeSettings
) -> None:
    written = paths.hypotheses(places, settings.length_penalty)
    for sentence, hypotheses in zip(paths.sentences[places].tolist(), written, strict=True):
        found[sentence] += hypotheses


def check(settings: DecodeSettings) -> None:
    """Raises ValueError for settings that no beam search has."""
    if settings.beam < 1:
        raise ValueError(f"beam must be 1 or more, got {settings.beam}")
    if not 1 <= settings.n_best <= settings.beam:
        raise ValueError(f"n_best must lie between 1 and beam, got {settings.n_best} and {settings.beam}")
