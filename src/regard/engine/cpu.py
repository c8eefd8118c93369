"""The C++ engine."""

from typing import Any
from weakref import finalize

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.config import DecodeSettings
from regard.engine.beam_state import best_hypotheses
from regard.model.norm import LayerNorm, RMSNorm
from regard.model.seq2seq import Choices, Seq2Seq, State
from regard.model.transformer import Transformer
from regard.native import REAL, WHOLE, Choice, Library, Search, Sentences, Sizes, open_library
from regard.padding import EOS
from regard.position.contract import Codes
from regard.position.relative import Rotary
from regard.search import beam
from regard.search.hypothesis import Hypothesis, make_prefix, max_lengths
from regard.search.sampling import check_greedy

NORM = {LayerNorm: 0, RMSNorm: 1}
ACTIVATION = {F.relu: 0, F.gelu: 1, F.silu: 2}
PRECISION = {"float32": 0, "int8": 1}
STEPS = 8  # of a search between two moments in which Python may be told to stop


class NativeState(State):
    """The address of what a decoder remembers; it changes with every call, so a state is used once."""

    def __init__(self, model: "NativeTransformer", address: int, n_rows: int, n_hypotheses: int):
        self.model = model  # outlives its writers
        self.address = address
        self.n_rows = n_rows
        self.n_hypotheses = n_hypotheses
        self.length = 0
        finalize(self, model.library.forget_writer, address)

    def reorder(self, rows: Int[Tensor, " R"]) -> "NativeState":
        rows = _whole(rows)
        self.model.library.reorder(self.address, rows.data_ptr(), len(rows))
        return self

    def keep(self, sentences: Int[Tensor, " M"]) -> "NativeState":
        sentences = _whole(sentences)
        self.model.library.keep(self.address, sentences.data_ptr(), len(sentences))
        self.n_rows = len(sentences) * self.n_hypotheses
        return self


class NativeTransformer(Seq2Seq):
    """Decodes as the Transformer it was made of, whose parameters it packs for the machine; it does not learn.

    Products sum in the same order for any number of rows, so that what a sentence becomes does not depend on its batch.
    In int8 each row is rounded by its own scale, for the same reason.
    """

    least = EOS  # smaller tokens are never said

    def __init__(self, model: Transformer, precision: str, library: Library):
        super().__init__()
        self.model = model
        self.output = model.output
        self.limit = model.limit
        self.library = library
        self.width = model.tgt.table.embedding_dim
        self.n_words = model.output.table.num_embeddings
        turned = turned_width(model)
        sides = (model.src, model.tgt)
        self.src_codes, self.tgt_codes = (Codes(side.position, side.table.weight, turned) for side in sides)
        self.tables = tuple(side.table.weight.detach().contiguous() for side in (model.src, model.tgt))  # read in place
        arrays = [*self.tables, *_parameters(model)]
        self.address = library.model(_sizes(model, precision), [0 if x is None else x.data_ptr() for x in arrays])
        self.precision = precision
        finalize(self, library.forget_model, self.address)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self.model, self.precision)  # an address means nothing to a copy

    def plain(self) -> Seq2Seq:
        return self.model

    def search(
        self,
        src: Source,
        limits: Int[np.ndarray, " B"],
        N: int,
        n_best: int,
        length_penalty: float,
        words: Int[np.ndarray, " W"] | None = None,
    ) -> tuple[dict[str, np.ndarray], Int[np.ndarray, " B"]]:
        """Searches with N hypotheses, some steps a call; gives the record of decisions, and how long each became.

        Where words are given, EOS among them, no others are said, and probabilities are among these.
        """
        B, T = len(limits), int(limits.max())
        record = {name: np.empty((B, T, N), np.int32 if name in WHOLE else np.float64) for name in WHOLE + REAL}
        limits, lengths = np.ascontiguousarray(limits, np.int64), np.zeros(B, np.int64)
        codes = self.tgt_codes.at(0, T)
        places = (each.ctypes.data for each in (*record.values(), lengths))
        words = None if words is None else np.ascontiguousarray(words, np.int64)
        some = (None, 0) if words is None else (words.ctypes.data, len(words))
        wanted = Search(N, n_best, self.least, T, length_penalty, limits.ctypes.data, *some, codes.data_ptr(), *places)
        state = self.start(src, N)
        searching = self.library.search(state.address, wanted)
        try:
            while not self.library.go_on(searching, STEPS, torch.get_num_threads()):
                pass
        finally:
            self.library.forget_search(searching)
        return record, lengths

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.model.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> NativeState:
        B, S = src.ids.shape
        ids, lengths = _whole(src.ids), _whole(src.lengths)
        codes = self.src_codes.at(0, S)
        read = Sentences(ids.data_ptr(), lengths.data_ptr(), B, S, codes.data_ptr())
        address = self.library.start(self.address, read, n_hypotheses, torch.get_num_threads())
        return NativeState(self, address, B * n_hypotheses, n_hypotheses)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], NativeState]:
        state, tokens = _own(state, tokens), _whole(tokens)
        logits = torch.empty(state.n_rows, self.n_words)
        code = self.tgt_codes.at(state.length, state.length + 1)
        self.library.step(state.address, tokens.data_ptr(), code.data_ptr(), torch.get_num_threads(), logits.data_ptr())
        state.length += 1
        return logits, state

    def choices(
        self, tokens: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, k: int
    ) -> tuple[Choices, NativeState]:
        state, tokens, k = _own(state, tokens), _whole(tokens), min(k, self.n_words)
        forced = None if must is None else _whole(must)
        choice = Choice(k, self.least, None if forced is None else forced.data_ptr())
        gains, said = torch.empty(state.n_rows, k), torch.empty(state.n_rows, k, dtype=torch.int64)
        code = self.tgt_codes.at(state.length, state.length + 1)
        places = tokens.data_ptr(), code.data_ptr()
        self.library.likeliest(
            state.address, *places, choice, torch.get_num_threads(), gains.data_ptr(), said.data_ptr()
        )
        state.length += 1
        return Choices(gains, said), state


def _again(model: Transformer, precision: str) -> NativeTransformer:
    return NativeTransformer(model, precision, open_library())


def _own(state: State, tokens: Tensor) -> NativeState:
    assert isinstance(state, NativeState), f"a native Transformer continues its own states, got {type(state)}"
    assert len(tokens) == state.n_rows, f"there must be one token for each of {state.n_rows} rows, got {len(tokens)}"
    return state


def _whole(numbers: Tensor) -> Tensor:
    """Gives numbers as compiled code reads them."""
    return numbers.to(torch.int64).contiguous()


def _sizes(model: Transformer, precision: str) -> Sizes:
    first: Any = model.decoder.layers[0]
    tables = model.src.table.num_embeddings, model.output.table.num_embeddings
    layers = len(model.encoder.layers), len(model.decoder.layers)
    sizes = model.tgt.table.embedding_dim, first.attention.n_heads, first.feed_forward.inner.out_features
    residual = first.after_attention
    parts = NORM[type(residual.norm)], residual.norm_first, ACTIVATION[first.feed_forward.activation]
    return Sizes(*sizes, *tables, *layers, *parts, PRECISION[precision], turned_width(model))


def turned_width(model: Transformer) -> int:
    """Gives the features of a head, if positions turn its queries and keys; else 0."""
    turns = isinstance(model.tgt.position, Rotary)
    return model.tgt.table.embedding_dim // model.decoder.layers[0].attention.n_heads if turns else 0  # pyright: ignore


def _parameters(model: Transformer) -> list[Tensor | None]:
    """Lists all parameters but the tables in the order in which `model.h` takes them."""
    found: list[Tensor | None] = []
    layer: Any
    for layer in model.encoder.layers:
        found += [*_own_attention(layer), *_feed_forward(layer)]
    for layer in model.decoder.layers:
        cross = layer.cross_attention
        maps = (_linear(cross.w_q), _linear(cross.w_k, cross.w_v), _linear(cross.w_o))
        found += [*_own_attention(layer), *(x for one in maps for x in one), *_norm(layer.after_cross_attention.norm)]
        found += _feed_forward(layer)
    for norm in (model.encoder.last_norm, model.decoder.last_norm):
        found += [] if norm is None else _norm(norm)
    return [*found, model.output.table.weight.detach().contiguous(), None]


def _own_attention(layer: Any) -> list[Tensor | None]:
    own = layer.attention
    return [*_linear(own.w_q, own.w_k, own.w_v), *_linear(own.w_o), *_norm(layer.after_attention.norm)]


def _feed_forward(layer: Any) -> list[Tensor | None]:
    inside = layer.feed_forward
    return [*_linear(inside.inner), *_linear(inside.outer), *_norm(layer.after_feed_forward.norm)]


def _linear(*maps: nn.Linear) -> list[Tensor | None]:
    """Sets some maps of the same input into one."""
    biases = [torch.zeros(m.out_features) if m.bias is None else m.bias.detach() for m in maps]
    return [torch.cat([m.weight.detach() for m in maps]), torch.cat(biases)]


def _norm(norm: Any) -> list[Tensor | None]:
    eps = torch.finfo(torch.float32).eps if norm.eps is None else norm.eps
    bias = norm.state_dict().get("bias")
    return [norm.weight.detach().contiguous(), bias, torch.tensor([eps])]


@torch.inference_mode()
def search(
    model: NativeTransformer, src: Source, settings: DecodeSettings, words: Int[np.ndarray, " W"] | None = None
) -> list[list[Hypothesis]]:
    """Finds what `greedy_search` and `beam.search` find, of some words where they are given.

    Threads of Python can search side by side.
    """
    (check_greedy if settings.method == "greedy" else beam.check)(settings)
    B = len(src.lengths)
    if B == 0:
        return []
    limits = max_lengths(model, src, settings, make_prefix(None, B))
    N = 1 if settings.method == "greedy" else settings.beam
    record, lengths = model.search(src, limits, N, settings.n_best, settings.length_penalty, words)
    return best_hypotheses(record, lengths, settings)
