"""The C++ engine: a Transformer packed for this machine's processor, without PyTorch."""

import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any
from weakref import finalize

from regard.config import DecodeSettings
from regard.engine import SELF_CONTAINED, Engine, Vocabulary
from regard.engine.native_weights import TransformerWeights
from regard.native import (
    SWITCH,
    BeamSearchArgs,
    Int8Rows,
    Library,
    Matrix,
    SourceBatch,
    SwitchedOffError,
    TopKOptions,
    UnavailableError,
    address,
    n_threads,
    open_library,
)
from regard.padding import EOS, PAD, Ids, pad_sources
from regard.search import CHECK
from regard.search.beam import EARLY_STOPPING, early_stopping, n_scores
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK, allowed_log_probs
from regard.search.hypothesis import INTEGERS, REALS, Hypothesis, free_lengths, make_hypothesis, ranked
from regard.shapes import Array, Float, Int, np

if TYPE_CHECKING:
    from regard.model import Seq2Seq


def free_with(owner: object, free: Callable[[int], None], address: int) -> None:
    """Free what lies at an address when its owner goes; not when the program ends, as a thread may be at work there."""
    finalize(owner, free, address).atexit = False


LONGEST = 1 << 31  # tokens that a target may have where positions have no end
STEPS = 8  # of a search between two moments in which Python may be told to stop


class NativeState(DecoderState):
    """The address of what a decoder remembers; it changes with every call, so a state is used once."""

    def __init__(self, decoder: "NativeDecoder", address: int, n_rows: int, n_hypotheses: int):
        self.decoder = decoder  # outlives its states
        self.address = address
        self.n_rows = n_rows
        self.n_hypotheses = n_hypotheses
        self.length = 0
        free_with(self, decoder.library.free_decoder, address)

    def reorder(self, rows: Int[Array, " R"]) -> "NativeState":
        rows = np.ascontiguousarray(rows, np.int64)
        self.decoder.library.reorder(self.address, rows.ctypes.data, len(rows))
        return self

    def keep(self, sentences: Int[Array, " M"]) -> "NativeState":
        sentences = np.ascontiguousarray(sentences, np.int64)
        self.decoder.library.keep(self.address, sentences.ctypes.data, len(sentences))
        self.n_rows = len(sentences) * self.n_hypotheses
        return self


class NativeDecoder(IncrementalDecoder):
    """Decodes as the Transformer whose parameters it packs.

    Products sum in the same order for any number of rows, so that a sentence's result does not depend on its batch. In
    int8 each row is rounded by its own scale, for the same reason.
    """

    min_token = EOS  # smaller ones are never written

    def __init__(self, weights: TransformerWeights, precision: str, library: Library):
        self.weights = weights
        self.library = library
        self.precision = precision
        self.limit = weights.limit
        self.vocab_size = len(weights.output_table)
        self.src_codes, self.tgt_codes = weights.src_codes, weights.tgt_codes
        arrays = map(_as_read, weights.parameters())
        self.tables = [next(arrays), next(arrays)]  # read where they lie; everything else is packed
        self.address = library.new_model(weights.config(precision), chain(self.tables, arrays))
        free_with(self, library.free_model, self.address)

    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> NativeState:
        ids, lengths, S = pad_sources(sources)
        B, codes = len(lengths), self.src_codes(0, S)
        batch = SourceBatch(address(ids), address(lengths), B, S, address(codes))
        decoder = self.library.new_decoder(self.address, batch, n_hypotheses, n_threads())
        return NativeState(self, decoder, B * n_hypotheses, n_hypotheses)

    def step(self, tokens: Int[Array, " R"], state: DecoderState) -> tuple[Float[Array, "R V"], NativeState]:
        """Read one token for each hypothesis, and return the logits of the next."""
        state, tokens = _own(state, tokens), np.ascontiguousarray(tokens, np.int64)
        logits = np.empty((state.n_rows, self.vocab_size), np.float32)
        code = self.tgt_codes(state.length, state.length + 1)
        self.library.step(state.address, address(tokens), address(code), n_threads(), address(logits))
        state.length += 1
        return logits, state

    def top_k(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None, k: int
    ) -> tuple[TopK, NativeState]:
        state, tokens, k = _own(state, tokens), np.ascontiguousarray(tokens, np.int64), min(k, self.vocab_size)
        forced = None if forced is None else np.ascontiguousarray(forced, np.int64)
        options = TopKOptions(k, self.min_token, None if forced is None else address(forced))
        log_probs, best = np.empty((state.n_rows, k), np.float32), np.empty((state.n_rows, k), np.int64)
        code = self.tgt_codes(state.length, state.length + 1)
        inputs, outputs = (address(tokens), address(code)), (address(log_probs), address(best))
        self.library.top_k(state.address, *inputs, options, n_threads(), *outputs)
        state.length += 1
        return TopK(log_probs, best), state

    def log_probs(
        self, tokens: Int[Array, " R"], state: DecoderState, forced: Int[Array, " R"] | None
    ) -> tuple[Float[Array, "R V"], NativeState]:
        logits, state = self.step(tokens, state)
        return allowed_log_probs(logits, forced), state

    def beam_search(
        self,
        sources: Sequence[Ids],
        N: int,
        settings: DecodeSettings,
        shortlist: Int[Array, " W"] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search with N hypotheses, some steps a call; return the `n_best` of each sentence.

        Where a shortlist is given, EOS in it, no other token is written, and probabilities are among these.
        """
        most = LONGEST if self.limit is None else self.limit
        limits = array("q", [min(length, most) for length in free_lengths(sources, settings)])
        history, codes = SearchHistory(len(limits), max(limits), N), self.tgt_codes(0, max(limits))
        shortlist = None if shortlist is None else np.ascontiguousarray(shortlist, np.int64)
        words = (None, 0) if shortlist is None else (address(shortlist), len(shortlist))
        options = (N, settings.n_best, self.min_token, max(limits))
        stop = (n_scores(settings, N), EARLY_STOPPING.index(early_stopping(settings, N)))
        forced = settings.forced_bos or PAD, settings.at_limit == "end"
        options = (*options, *stop, *forced, settings.length_penalty)
        args = BeamSearchArgs(*options, address(limits), *words, address(codes), *history.addresses())
        state = self.start(sources, N)
        search = self.library.new_beam_search(state.address, args)
        try:
            while not self.library.advance(search, STEPS, n_threads()):
                pass
        finally:
            self.library.free_beam_search(search)
        return [history.best(sentence, settings, limit) for sentence, limit in enumerate(limits)]


class SearchHistory:
    """What a search kept of each step of each sentence (`search/hypothesis.py`), and how long each sentence became."""

    def __init__(self, B: int, T: int, N: int):
        self.T, self.N = T, N
        self.arrays = {name: array("i", bytes(4 * B * T * N)) for name in INTEGERS}
        self.arrays |= {name: array("d", bytes(8 * B * T * N)) for name in REALS}
        self.lengths = array("q", bytes(8 * B))

    def addresses(self) -> Iterator[int]:
        """Yield where C++ writes, in the order of BeamSearchArgs."""
        return (address(each) for each in (*self.arrays.values(), self.lengths))

    def best(self, sentence: int, settings: DecodeSettings, limit: int) -> list[Hypothesis]:
        """Return the `n_best` hypotheses of a sentence, as `best_hypotheses` does: unfinished ones if too few ended."""
        longest = limit if settings.at_limit == "among" else None
        first, n_steps, N = sentence * self.T * self.N, self.lengths[sentence], self.N
        ends = self.arrays["end_totals"][first : first + n_steps * N].tolist()
        scores = {i: total / (i // N + 1.0) ** settings.length_penalty for i, total in enumerate(ends) if total > -inf}
        found = []
        for i in sorted(scores, key=lambda i: -scores[i])[: settings.n_best]:
            tokens, log_probs = self._trace_back(first, i // N, int(self.arrays["end_parents"][first + i]))
            tokens, log_probs = [*tokens, EOS], [*log_probs, self.arrays["end_log_probs"][first + i]]
            found.append(make_hypothesis(tokens, log_probs, settings.length_penalty))
        last = first + (n_steps - 1) * N
        joining = len(found) < settings.n_best or n_steps == longest
        for row in range(min(N, settings.n_best) if joining else 0):
            if self.arrays["totals"][last + row] > -inf:  # largest first, since that is how a search goes on
                found.append(make_hypothesis(*self._trace_back(first, n_steps, row), settings.length_penalty))
        return ranked(found, settings.n_best, longest)

    def _trace_back(self, first: int, n_steps: int, row: int) -> tuple[list[int], list[float]]:
        at = []
        for step in range(n_steps - 1, -1, -1):
            at.append(first + step * self.N + row)
            row = self.arrays["parents"][at[-1]]
        at.reverse()
        return [self.arrays["tokens"][i] for i in at], [self.arrays["log_probs"][i] for i in at]


def _as_read(matrix: Matrix | None) -> Matrix | None:
    """Return a matrix as C++ reads it: whole rows one after another, at addresses that suit their numbers."""
    if isinstance(matrix, Int8Rows):
        return Int8Rows(_as_numbers(matrix.values, "b"), _as_numbers(matrix.scales, "f"))  # pyright: ignore
    return None if matrix is None else _as_numbers(matrix, "f")


def _as_numbers(numbers: Any, form: str) -> Any:
    """Return what NumPy or a file holds in bytes or in float32, copied only where it must be."""
    if isinstance(numbers, memoryview) and numbers.format == form and address(numbers) % numbers.itemsize == 0:
        return numbers
    return np.require(np.asarray(numbers), np.int8 if form == "b" else np.float32, ["C", "A"])


def _own(state: DecoderState, tokens: Array) -> NativeState:
    assert isinstance(state, NativeState), f"a native decoder continues its own states, got {type(state)}"
    assert len(tokens) == state.n_rows, f"there must be one token for each of {state.n_rows} rows, got {len(tokens)}"
    return state


class NativeEngine(Engine):
    """Runs greedy and beam search in C++, several at a time where Python's threads ask; equal to the plain ones."""

    def __init__(self, decoder: NativeDecoder, load_plain: "Callable[[], Seq2Seq]", reopen: tuple[Any, ...]):
        self._decoder = decoder
        self._load_plain = load_plain
        self._reopen = reopen  # how another process makes the same engine: an address means nothing to a copy

    @cached_property
    def model(self) -> "Seq2Seq":  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._load_plain().eval()

    @property
    def decoder(self) -> NativeDecoder:
        return self._decoder

    @property
    def precision(self) -> str:
        """Name the arithmetic of the linear maps."""
        return self._decoder.precision

    def search_batch(
        self,
        sources: Sequence[Ids],
        settings: DecodeSettings,
        prefix: Sequence[Ids] | None = None,
        vocabulary: Vocabulary | None = None,
    ) -> list[list[Hypothesis]]:
        if prefix is not None or settings.method not in SELF_CONTAINED:
            return super().search_batch(sources, settings, prefix, vocabulary)
        CHECK[settings.method](settings)
        if not sources:
            return []
        N = 1 if settings.method == "greedy" else settings.beam
        shortlist = None if vocabulary is None else vocabulary(sources)
        return self._decoder.beam_search(sources, N, settings, shortlist)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen


def find_library() -> Library | None:
    """Return the compiled code, where there is any; else say why not."""
    try:
        return open_library()
    except SwitchedOffError:
        return None
    except UnavailableError as error:
        way_out = f"run regard native --build for up to three times the speed, or set {SWITCH}=0 to hide this line"
        warnings.warn(f"PyTorch translates, since there is no compiled code: {error}; {way_out}", stacklevel=2)
        return None
