"""A decoder that does not go on with what it says over and over."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.padding import EOS, PAD, Ids
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK
from regard.search.hypothesis import LONGEST_BLOCK, allowed_run, count_repeats
from regard.shapes import Array, Float, Int, np


@dataclass(frozen=True, eq=False)
class HistoryState(DecoderState):
    """Another state, with the tokens that each hypothesis has read and the run that it is allowed."""

    inner: DecoderState
    tokens: list[list[int]]  # of each row
    allowed: list[float]  # of each sentence

    def reorder(self, rows: Int[Array, " R"]) -> "HistoryState":
        return HistoryState(self.inner.reorder(rows), [self.tokens[row][:] for row in rows.tolist()], self.allowed)

    def keep(self, sentences: Int[Array, " M"]) -> "HistoryState":
        N = len(self.tokens) // len(self.allowed)
        kept = sentences.tolist()
        tokens = [self.tokens[i * N + n] for i in kept for n in range(N)]
        return HistoryState(self.inner.keep(sentences), tokens, [self.allowed[i] for i in kept])


class LoopFreeDecoder(IncrementalDecoder):
    """Another decoder, of which no token may follow that repeats a block more often than `allowed_run` says.

    Nor may a target end before it has begun. The log-probabilities of all other tokens stay as they are.
    """

    def __init__(self, decoder: IncrementalDecoder):
        self.decoder = decoder
        self.limit = decoder.limit

    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> HistoryState:
        allowed = [allowed_run(source) for source in sources]
        tokens: list[list[int]] = [[] for _ in range(len(sources) * n_hypotheses)]
        return HistoryState(self.decoder.start(sources, n_hypotheses), tokens, allowed)

    def top_k(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None, k: int
    ) -> tuple[TopK, HistoryState]:
        read, banned = _read(state, tokens, forced)
        found, inner = self.decoder.top_k(tokens, read.inner, forced, k + max(map(len, banned)))
        log_probs = found.log_probs.copy()
        for row, some in enumerate(banned):
            log_probs[row, np.isin(found.tokens[row], some)] = -np.inf
        best = np.argsort(-log_probs, axis=1, kind="stable")[:, :k]
        top_k = TopK(np.take_along_axis(log_probs, best, axis=1), np.take_along_axis(found.tokens, best, axis=1))
        return top_k, replace(read, inner=inner)

    def log_probs(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None
    ) -> tuple[Float[Array, "R V"], HistoryState]:
        read, banned = _read(state, tokens, forced)
        log_probs, inner = self.decoder.log_probs(tokens, read.inner, forced)
        for row, some in enumerate(banned):
            log_probs[row, some] = -np.inf
        return log_probs, replace(read, inner=inner)


def _read(
    state: DecoderState, tokens: Int[Array, " R"], forced: Int[Array, " R"] | None
) -> tuple[HistoryState, list[list[int]]]:
    """Return the histories after a token of each row, and the tokens that may not follow; a forced one may."""
    assert isinstance(state, HistoryState), f"this decoder continues its own states, got {type(state)}"
    N = len(state.tokens) // len(state.allowed)
    histories = [[*before, token] for before, token in zip(state.tokens, tokens.tolist(), strict=True)]
    banned = [
        [] if forced is not None and forced[row] != PAD else _banned(history[1:], state.allowed[row // N])
        for row, history in enumerate(histories)
    ]
    return replace(state, tokens=histories), banned


def _banned(written: list[int], allowed: float) -> list[int]:
    return sorted(looping_tokens(written, allowed)) if written else [EOS]


def looping_tokens(written: Sequence[int], allowed: float) -> set[int]:
    """Return the tokens that would repeat what stands at the end more often than is allowed."""
    banned = set()
    for period in range(1, min(LONGEST_BLOCK, (len(written) + 1) // 2) + 1):
        same = 0
        while same + period < len(written) and written[-1 - same] == written[-1 - same - period]:
            same += 1
        if same + 1 >= period and count_repeats(same + 1, period) > allowed:
            banned.add(written[-period])
    return banned
