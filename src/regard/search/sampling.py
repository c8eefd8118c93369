"""Greedy and sampled decoding: hypotheses that do not compete."""

from collections.abc import Callable, Sequence
from hashlib import blake2b

from regard.config import DecodeSettings
from regard.padding import EOS, Ids
from regard.search.decoder import DecoderState, IncrementalDecoder
from regard.search.hypothesis import Hypothesis, PartialHypotheses, begin, make_prefix, max_lengths, ranked
from regard.shapes import Array, Float, Int, np

# The next token of each hypothesis, its log-probability, and the state after it.
NextToken = tuple[Int[Array, " R"], Float[Array, " R"], DecoderState]
ChooseNext = Callable[[PartialHypotheses, DecoderState, Int[Array, " R"] | None], NextToken]


def decode_loop(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    prefix: Sequence[Ids] | None,
    n_hypotheses: int,
    choose_next: ChooseNext,
) -> list[list[Hypothesis]]:
    """Write some hypotheses of each sentence to their ends; a sentence leaves the batch with its last one."""
    B = len(sources)
    forced = make_prefix(prefix, B, settings.forced_bos)
    partial = begin(max_lengths(sources, settings, decoder.limit, forced), n_hypotheses)
    done = np.zeros(partial.totals.shape, dtype=bool)
    state = decoder.start(sources, n_hypotheses) if B else None
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    rows = np.arange(B * n_hypotheses).reshape(B, n_hypotheses)
    while state is not None:
        next_forced = forced.at(partial.length, partial.sentences, n_hypotheses)
        tokens, log_probs, state = choose_next(partial, state, next_forced)
        shape = partial.totals.shape
        ended = (partial.limits == partial.length + 1).repeat(n_hypotheses) & (settings.at_limit == "end")
        tokens, log_probs = np.where(ended, EOS, tokens), np.where(ended, np.float32(0.0), log_probs)
        log_probs = log_probs * (settings.forced_bos is None or partial.length > 0)  # it costs nothing
        partial = partial.extend(tokens.reshape(shape), log_probs.reshape(shape), rows[: shape[0]])
        done |= partial.tokens == EOS
        over = done.all(1) | (partial.limits <= partial.length)
        if over.any():
            partial.collect(results, np.flatnonzero(over), settings.length_penalty)
            left = np.flatnonzero(~over)
            partial, done = partial.keep(left), done[left]
            state = state.keep(left) if len(left) else None
    return [ranked(hypotheses, settings.n_best) for hypotheses in results]


def greedy_search(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    prefix: Sequence[Ids] | None = None,
) -> list[list[Hypothesis]]:
    """Write one hypothesis of each sentence: the most probable token at each step."""
    check_greedy(settings)

    def choose_next(partial: PartialHypotheses, state: DecoderState, forced: Int[Array, " R"] | None) -> NextToken:
        best, state = decoder.top_k(partial.last(), state, forced, 1)
        return best.tokens[:, 0], best.log_probs[:, 0], state

    return decode_loop(decoder, sources, settings, prefix, 1, choose_next)


def check_greedy(settings: DecodeSettings) -> None:
    """Raise ValueError for settings that greedy search does not have."""
    if settings.n_best != 1:
        raise ValueError(f"greedy search finds one hypothesis, got n_best {settings.n_best}: use 'beam' or 'sample'")


def sample_search(
    decoder: IncrementalDecoder,
    sources: Sequence[Ids],
    settings: DecodeSettings,
    prefix: Sequence[Ids] | None = None,
) -> list[list[Hypothesis]]:
    """Write `n_best` hypotheses of each sentence, independent of each other, and rank them.

    Chance depends on the seed and the sentence alone: the same sentence gets the same samples in any batch.
    """
    check_sampling(settings)
    limits = max_lengths(sources, settings, decoder.limit, make_prefix(prefix, len(sources), settings.forced_bos))
    draws = uniforms(sources, limits.tolist(), settings)

    def choose_next(partial: PartialHypotheses, state: DecoderState, forced: Int[Array, " R"] | None) -> NextToken:
        log_probs, state = decoder.log_probs(partial.last(), state, forced)
        tokens = draw(log_probs, draws[partial.sentences, :, partial.length].flatten(), settings)
        return tokens, np.take_along_axis(log_probs, tokens[:, None], 1)[:, 0], state

    return decode_loop(decoder, sources, settings, prefix, settings.n_best, choose_next)


def uniforms(sources: Sequence[Ids], limits: Sequence[int], settings: DecodeSettings) -> Float[Array, "B N T"]:
    """Return numbers from [0, 1) for each step of each hypothesis, by a generator for each sentence.

    Two draws of a Mersenne twister make 53 random bits, as in PyTorch's generator on a CPU, whose numbers these are.
    """
    numbers = np.zeros((len(limits), settings.n_best, max(limits, default=0)))
    for row, source, limit in zip(numbers, sources, limits, strict=True):
        closed = [*(int(token) for token in source), EOS]
        digest = blake2b(repr((settings.seed, closed)).encode(), digest_size=8).digest()
        twister = np.random.RandomState(int.from_bytes(digest[:4], "little"))
        halves = twister.randint(0, 2**32, size=(settings.n_best, limit, 2), dtype=np.uint32).astype(np.uint64)
        bits = ((halves[..., 0] << np.uint64(32)) | halves[..., 1]) & np.uint64(2**53 - 1)
        row[:, :limit] = bits * 2.0**-53
    return numbers


def draw(log_probs: Float[Array, "R V"], draws: Float[Array, " R"], settings: DecodeSettings) -> Int[Array, " R"]:
    """Return the first token at which the cumulative probability exceeds the draw."""
    scaled = (log_probs / settings.temperature).astype(np.float64)
    if settings.top_k is None and settings.top_p is None:
        return _exceeding(_softmax(scaled), draws)
    k = min(settings.top_k or scaled.shape[1], scaled.shape[1])
    ids = np.argsort(-scaled, axis=1, kind="stable")[:, :k]
    probabilities = _softmax(np.take_along_axis(scaled, ids, 1))
    if settings.top_p is not None:
        before = probabilities.cumsum(-1) - probabilities
        probabilities[before >= settings.top_p] = 0.0  # the first always stays
    return np.take_along_axis(ids, _exceeding(probabilities, draws)[:, None], 1)[:, 0]


def _softmax(scores: Float[Array, "R K"]) -> Float[Array, "R K"]:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _exceeding(probabilities: Float[Array, "R K"], draws: Float[Array, " R"]) -> Int[Array, " R"]:
    reached = probabilities.cumsum(-1)
    return (reached <= draws[:, None] * reached[:, -1:]).sum(-1)


def check_sampling(settings: DecodeSettings) -> None:
    """Raise ValueError for settings by which nothing can be drawn."""
    if settings.n_best < 1:
        raise ValueError(f"n_best must be 1 or more, got {settings.n_best}")
    if not settings.temperature > 0:
        raise ValueError(f"temperature must be above 0, got {settings.temperature}: for the likeliest use 'greedy'")
    if settings.top_k is not None and settings.top_k < 1:
        raise ValueError(f"top_k must be 1 or more, got {settings.top_k}")
    if settings.top_p is not None and not 0 < settings.top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {settings.top_p}")
