"""Beam search: the reference for every engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.config import DecodeSettings
from regard.padding import EOS, Ids
from regard.search.decoder import IncrementalDecoder, TopK
from regard.search.hypothesis import Hypothesis, PartialHypotheses, begin, make_prefix, max_lengths, ranked
from regard.shapes import Array, Bool, Float, Int, np

EARLY_STOPPING = ("full", "heuristic", "never")  # in the order in which C++ and kernels count them


def early_stopping(settings: DecodeSettings, beam: int) -> str:
    """Return when a sentence is done; a beam of 1 is greedy search, which ends with the first end."""
    return settings.early_stopping if beam > 1 else "full"


def n_scores(settings: DecodeSettings, beam: int) -> int:
    """Return how many finished hypotheses one in progress competes with: those wanted, or as many as the beam."""
    return settings.n_best if early_stopping(settings, beam) == "full" else beam


@dataclass(frozen=True, eq=False)
class BestFinished:
    """The best scores of finished hypotheses of each sentence, and how many have finished."""

    scores: Float[Array, "B M"]  # largest first, −∞ where fewer have finished
    n_finished: Int[Array, " B"]

    def add(self, finished: PartialHypotheses, length_penalty: float) -> "BestFinished":
        """Count hypotheses that end with this token."""
        scores = np.concatenate([self.scores, finished.totals / finished.length**length_penalty], axis=1)
        n_new = (finished.totals != -np.inf).sum(1)
        return BestFinished(-np.sort(-scores, axis=1)[:, : self.scores.shape[1]], self.n_finished + n_new)

    def keep(self, indices: Int[Array, " M"]) -> "BestFinished":
        """Go on with some sentences only."""
        return BestFinished(self.scores[indices], self.n_finished[indices])

    def is_final(self, partial: PartialHypotheses, settings: DecodeSettings) -> Bool[Array, " B"]:
        """The stop rule: tell which sentences have enough ends, can find no better one, or have reached their limit.

        A log-probability never grows. Divided by a power of the length it is best at the longest length for a positive
        penalty, and at the next one otherwise. `early_stopping` names what is enough; scores are −∞ where fewer have
        finished than they are of.
        """
        best, penalty = partial.totals.max(1), settings.length_penalty
        length = partial.limits.astype(np.float64) if penalty > 0 else partial.length + 1
        final = (best / length**penalty <= self.scores[:, -1]) | (partial.limits <= partial.length)
        rule = early_stopping(settings, settings.beam)
        if rule == "full":
            return final | (self.n_finished >= settings.beam)
        return final | (best / partial.length**penalty <= self.scores[:, -1]) if rule == "heuristic" else final


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations of each sentence's hypotheses by one token, the most probable first."""

    totals: Float[Array, "B C"]  # log-probability of the whole
    log_probs: Float[Array, "B C"]  # and of the token
    tokens: Int[Array, "B C"]
    rows: Int[Array, "B C"]  # the hypothesis it continues


def beam_search(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    prefix: Sequence[Ids] | None = None,
) -> list[list[Hypothesis]]:
    """Keep the `beam` most probable hypotheses at each step, and the ends found on the way.

    A hypothesis ends where EOS is among the `beam` best continuations. A sentence leaves the batch when it is final
    (`BestFinished.is_final`); what is unfinished then ranks behind all ends. A step costs one of the model with `beam`
    rows for each sentence.
    """
    check_beam(settings)
    B, N = len(sources), settings.beam
    forced = make_prefix(prefix, B, settings.forced_bos)
    partial = one_beginning(begin(max_lengths(sources, settings, decoder.limit, forced), N))
    finished = BestFinished(np.full((B, n_scores(settings, N)), -np.inf), np.zeros(B, np.int64))
    state = decoder.start(sources, N) if B else None
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    longest = partial.limits.tolist() if settings.at_limit == "among" else [None] * B
    while state is not None:
        # More than N + 1 continuations of one hypothesis are never needed: it may end, and go on in N ways.
        next_forced = forced.at(partial.length, partial.sentences, N)
        top_k, state = decoder.top_k(partial.last(), state, next_forced, N + 1)
        top_k, ended = free_ends(free_of_charge(top_k, partial.length, settings), partial, settings)
        best = candidates(top_k, partial.totals)
        finished = _collect_ends(results, partial, best, finished, settings)
        partial = advance(partial, best)
        partial.totals[ended] = -np.inf
        final = finished.is_final(partial, settings)
        left = np.flatnonzero(~final)
        state = state.reorder(partial.rows.flatten()) if N > 1 and len(left) else state
        if len(left) < B:
            partial.collect(results, np.flatnonzero(final), settings.length_penalty)
            partial, finished, B = partial.keep(left), finished.keep(left), len(left)
            state = state.keep(left) if B else None
    return [ranked(each, settings.n_best, limit) for each, limit in zip(results, longest, strict=True)]


def free_of_charge(top_k: TopK, length: int, settings: DecodeSettings) -> TopK:
    """Let the token that every target begins with cost nothing."""
    if length or settings.forced_bos is None:
        return top_k
    return TopK(np.where(top_k.tokens == settings.forced_bos, np.float32(0.0), np.float32(-np.inf)), top_k.tokens)


def free_ends(top_k: TopK, partial: PartialHypotheses, settings: DecodeSettings) -> tuple[TopK, Bool[Array, " B"]]:
    """Let hypotheses end at their longest length, at no cost; return which sentences' do so now."""
    ended = (partial.limits == partial.length + 1) & (settings.at_limit == "end")
    if not ended.any():
        return top_k, ended
    rows = ended.repeat(partial.totals.shape[1])
    tokens, log_probs = top_k.tokens.copy(), top_k.log_probs.copy()
    tokens[rows], log_probs[rows] = EOS, -np.inf
    log_probs[rows, 0] = 0.0
    return TopK(log_probs, tokens), ended


def one_beginning(partial: PartialHypotheses) -> PartialHypotheses:
    """Leave one hypothesis of each sentence, since all begin alike."""
    partial.totals[:, 1:] = -np.inf
    return partial


def candidates(top_k: TopK, totals: Float[Array, "B N"]) -> Candidates:
    """Return the 2N best continuations: enough to go on with N, however many of them are ends."""
    B, N = totals.shape
    k = top_k.log_probs.shape[1]
    sums = totals.reshape(-1, 1) + top_k.log_probs
    at = np.argsort(-sums.reshape(B, N * k), axis=1, kind="stable")[:, : 2 * N]
    at += np.arange(0, B * N * k, N * k)[:, None]  # (B, 2N): where in all of them
    return Candidates(sums.ravel()[at], top_k.log_probs.ravel()[at], top_k.tokens.ravel()[at], at // k)


def is_end(best: Candidates) -> Bool[Array, "B N"]:
    """Tell which of the first half of the continuations are ends."""
    N = best.tokens.shape[1] // 2
    return best.tokens[:, :N] == EOS


def advance(partial: PartialHypotheses, best: Candidates) -> PartialHypotheses:
    """Go on with the N best continuations that are not ends: a hypothesis ends in one way, so N of the 2N are not."""
    B, N = partial.totals.shape
    ends = best.tokens == EOS
    if not ends.any():
        return partial.extend(best.tokens[:, :N], best.log_probs[:, :N], best.rows[:, :N])
    sentence, at = np.arange(B)[:, None], np.argsort(ends, axis=1, kind="stable")[:, :N]
    return partial.extend(best.tokens[sentence, at], best.log_probs[sentence, at], best.rows[sentence, at])


def _collect_ends(
    results: list[list[Hypothesis]],
    partial: PartialHypotheses,
    best: Candidates,
    finished: BestFinished,
    settings: DecodeSettings,
) -> BestFinished:
    ends = is_end(best)
    if not ends.any():
        return finished
    N = ends.shape[1]
    ended = partial.extend(best.tokens[:, :N], best.log_probs[:, :N], best.rows[:, :N])
    ended.totals[~ends] = -np.inf
    ended.collect(results, np.flatnonzero(ends.any(1)), settings.length_penalty)
    return finished.add(ended, settings.length_penalty)


def check_beam(settings: DecodeSettings) -> None:
    """Raise ValueError for settings that no beam search has."""
    if settings.beam < 1:
        raise ValueError(f"beam must be 1 or more, got {settings.beam}")
    if not 1 <= settings.n_best <= settings.beam:
        raise ValueError(f"n_best must lie between 1 and beam, got {settings.n_best} and {settings.beam}")
