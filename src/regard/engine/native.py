"""The C++ engine: a Transformer packed for this machine's processor, without PyTorch."""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any
from weakref import finalize

import numpy as np
from jaxtyping import Float, Int

from regard.config import DecodeSettings
from regard.engine import SELF_CONTAINED, Engine, Vocabulary
from regard.engine.native_weights import TransformerWeights
from regard.native import (
    SWITCH,
    BeamSearchArgs,
    Library,
    SourceBatch,
    SwitchedOffError,
    TopKOptions,
    UnavailableError,
    n_threads,
    open_library,
)
from regard.padding import EOS, Ids, pad_sources
from regard.search import CHECK
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK, allowed_log_probs
from regard.search.hypothesis import INTEGERS, REALS, History, Hypothesis, best_hypotheses, max_lengths

if TYPE_CHECKING:
    from regard.model import Seq2Seq


def free_with(owner: object, free: Callable[[int], None], address: int) -> None:
    """Free what lies at an address when its owner goes; not when the program ends, as a thread may be at work there."""
    finalize(owner, free, address).atexit = False


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

    def reorder(self, rows: Int[np.ndarray, " R"]) -> "NativeState":
        rows = np.ascontiguousarray(rows, np.int64)
        self.decoder.library.reorder(self.address, rows.ctypes.data, len(rows))
        return self

    def keep(self, sentences: Int[np.ndarray, " M"]) -> "NativeState":
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
        self.library = library
        self.precision = precision
        self.limit = weights.limit
        self.vocab_size = len(weights.output_table)
        self.src_codes, self.tgt_codes = weights.src_codes, weights.tgt_codes
        arrays = (None if x is None else np.require(x, np.float32, ["C", "A"]) for x in weights.parameters())
        self.tables = [next(arrays), next(arrays)]  # read where they lie; everything else is packed
        self.address = library.new_model(weights.config(precision), chain(self.tables, arrays))
        free_with(self, library.free_model, self.address)

    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> NativeState:
        ids, lengths = pad_sources(sources)
        B, S = ids.shape
        codes = self.src_codes(0, S)
        batch = SourceBatch(ids.ctypes.data, lengths.ctypes.data, B, S, codes.ctypes.data)
        address = self.library.new_decoder(self.address, batch, n_hypotheses, n_threads())
        return NativeState(self, address, B * n_hypotheses, n_hypotheses)

    def step(self, tokens: Int[np.ndarray, " R"], state: DecoderState) -> tuple[Float[np.ndarray, "R V"], NativeState]:
        """Read one token for each hypothesis, and return the logits of the next."""
        state, tokens = _own(state, tokens), np.ascontiguousarray(tokens, np.int64)
        logits = np.empty((state.n_rows, self.vocab_size), np.float32)
        code = self.tgt_codes(state.length, state.length + 1)
        self.library.step(state.address, tokens.ctypes.data, code.ctypes.data, n_threads(), logits.ctypes.data)
        state.length += 1
        return logits, state

    def top_k(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None, k: int
    ) -> tuple[TopK, NativeState]:
        state, tokens, k = _own(state, tokens), np.ascontiguousarray(tokens, np.int64), min(k, self.vocab_size)
        forced = None if forced is None else np.ascontiguousarray(forced, np.int64)
        options = TopKOptions(k, self.min_token, None if forced is None else forced.ctypes.data)
        log_probs, best = np.empty((state.n_rows, k), np.float32), np.empty((state.n_rows, k), np.int64)
        code = self.tgt_codes(state.length, state.length + 1)
        inputs, outputs = (tokens.ctypes.data, code.ctypes.data), (log_probs.ctypes.data, best.ctypes.data)
        self.library.top_k(state.address, *inputs, options, n_threads(), *outputs)
        state.length += 1
        return TopK(log_probs, best), state

    def log_probs(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None
    ) -> tuple[Float[np.ndarray, "R V"], NativeState]:
        logits, state = self.step(tokens, state)
        return allowed_log_probs(logits, forced), state

    def beam_search(
        self,
        sources: Sequence[Ids],
        N: int,
        settings: DecodeSettings,
        shortlist: Int[np.ndarray, " W"] | None = None,
    ) -> tuple[History, Int[np.ndarray, " B"]]:
        """Search with N hypotheses, some steps a call; return the history of decisions, and how long each became.

        Where a shortlist is given, EOS in it, no other token is written, and probabilities are among these.
        """
        limits = np.ascontiguousarray(max_lengths(sources, settings, self.limit), np.int64)
        B, T = len(limits), int(limits.max())
        history = {name: np.empty((B, T, N), np.int32 if name in INTEGERS else np.float64) for name in INTEGERS + REALS}
        lengths, codes = np.zeros(B, np.int64), self.tgt_codes(0, T)
        outputs = (each.ctypes.data for each in (*history.values(), lengths))
        shortlist = None if shortlist is None else np.ascontiguousarray(shortlist, np.int64)
        words = (None, 0) if shortlist is None else (shortlist.ctypes.data, len(shortlist))
        options = (N, settings.n_best, self.min_token, T, settings.length_penalty)
        args = BeamSearchArgs(*options, limits.ctypes.data, *words, codes.ctypes.data, *outputs)
        state = self.start(sources, N)
        search = self.library.new_beam_search(state.address, args)
        try:
            while not self.library.advance(search, STEPS, n_threads()):
                pass
        finally:
            self.library.free_beam_search(search)
        return history, lengths


def _own(state: DecoderState, tokens: np.ndarray) -> NativeState:
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
        return best_hypotheses(*self._decoder.beam_search(sources, N, settings, shortlist), settings)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reopen


def find_library(precision: str) -> Library | None:
    """Return the compiled code, where there is any and it is the faster way in this precision; else say why not."""
    try:
        library = open_library()
    except SwitchedOffError:
        return None
    except UnavailableError as error:
        way_out = f"install a C++ compiler for up to three times the speed, or set {SWITCH}=0 to hide this line"
        warnings.warn(f"PyTorch translates, since there is no compiled code: {error}; {way_out}", stacklevel=2)
        return None
    return library if precision == "float32" or library.has_fast_int8() else None
