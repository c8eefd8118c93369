"""The plain engine: any PyTorch model, searched step by step as `search/` defines."""

from collections.abc import Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.batch import make_source
from regard.engine import Engine
from regard.model.quantize import quantize_linears
from regard.model.seq2seq import Seq2Seq, State, allowed_log_probs, top_k
from regard.padding import Ids
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK
from regard.shapes import Float, Int

# On a CPU a product of few rows sums in another order than one of more, and so does a sum over keys whose number is no
# multiple of the widest vector. With both kept, padding and other sentences change no bit of a result. With AVX-512 the
# border lies at 3 rows for 64 features, at 11 for 256 and at 16 for 512 and more (in one thread).
LEAST_ROWS = 16
COLUMNS = 16


@dataclass(frozen=True, eq=False)
class PlainState(DecoderState):
    """A model's own state, moved by NumPy's indices.

    Where there are too few rows, the model's state holds sentences more than once, of which the search knows nothing.
    """

    state: State
    device: torch.device
    n_sentences: int
    n_hypotheses: int

    @property
    def n_rows(self) -> int:
        """Hypotheses in the model's state."""
        if self.device.type != "cpu":
            return self.n_sentences * self.n_hypotheses
        return max(self.n_sentences, -(-LEAST_ROWS // self.n_hypotheses)) * self.n_hypotheses

    def reorder(self, rows: Int[np.ndarray, " R"]) -> "PlainState":
        copy = np.arange(self.n_rows) // len(rows)
        rows = np.resize(rows, self.n_rows) + copy * len(rows)
        return replace(self, state=self.state.reorder(torch.from_numpy(rows).to(self.device)))

    def keep(self, sentences: Int[np.ndarray, " M"]) -> "PlainState":
        left = replace(self, n_sentences=len(sentences))
        sentences = np.resize(sentences, left.n_rows // self.n_hypotheses)
        return replace(left, state=self.state.keep(torch.from_numpy(sentences).to(self.device)))


class PlainDecoder(IncrementalDecoder):
    """A PyTorch model, asked from NumPy."""

    def __init__(self, model: Seq2Seq):
        self.model = model
        self.limit = model.limit

    @torch.inference_mode()
    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> PlainState:
        device, B = next(self.model.parameters()).device, len(sources)
        if device.type != "cpu":
            return PlainState(self.model.start(make_source(sources).to(device), n_hypotheses), device, B, n_hypotheses)
        longest = max(map(len, sources)) + 1
        enough = [sources[i % B] for i in range(max(B, LEAST_ROWS))]
        state = self.model.start(make_source(enough, width=-(-longest // COLUMNS) * COLUMNS), n_hypotheses)
        held = PlainState(state, device, len(enough), n_hypotheses)
        return held if len(enough) == B else held.keep(np.arange(B))

    def top_k(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None, k: int
    ) -> tuple[TopK, PlainState]:
        log_probs, after = self._step(tokens, state, forced)
        values, best = top_k(log_probs, k)
        return TopK(values.cpu().numpy(), best.cpu().numpy()), after

    def log_probs(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None
    ) -> tuple[Float[np.ndarray, "R V"], PlainState]:
        log_probs, after = self._step(tokens, state, forced)
        return log_probs.cpu().numpy(), after

    @torch.inference_mode()
    def _step(
        self, tokens: Int[np.ndarray, " R"], state: DecoderState, forced: Int[np.ndarray, " R"] | None
    ) -> tuple[Float[Tensor, "R V"], PlainState]:
        assert isinstance(state, PlainState), f"a plain decoder continues its own states, got {type(state)}"
        device = state.device
        padded = torch.from_numpy(np.resize(tokens, state.n_rows)).to(device)
        logits, after = self.model.step(padded, state.state)
        must = None if forced is None else torch.from_numpy(forced).to(device)
        return allowed_log_probs(logits[: len(tokens)], must), replace(state, state=after)


class PackedOutput(nn.Module):
    """The output layer with a copy of its weights as oneDNN packs them: few rows take a third of the time."""

    def __init__(self, weight: Float[Tensor, "V D"], bias: Float[Tensor, " V"] | None):
        super().__init__()
        self.bias = None if bias is None else bias.detach()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)

    def forward(self, x: Float[Tensor, "R D"]) -> Float[Tensor, "R V"]:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def with_packed_output(model: Seq2Seq) -> Seq2Seq:
    """Return a model that shares all modules but the output layer, where oneDNN has a faster one: float32 on a CPU."""
    weight = model.output.table.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not torch.backends.mkldnn.is_available():
        return model
    packed: Any = copy(model)
    packed._modules = {**model._modules, "output": PackedOutput(weight, model.output.bias)}
    return packed


class PlainEngine(Engine):
    """A PyTorch model as it is, in evaluation mode from now on; or searched by a decoder that computes the same."""

    def __init__(self, model: Seq2Seq, decoder: PlainDecoder | None = None):
        self._model = model.eval()
        self._decoder = decoder or PlainDecoder(model)

    @property
    def model(self) -> Seq2Seq:
        return self._model

    @property
    def decoder(self) -> PlainDecoder:
        return self._decoder


def plain_engine(model: Seq2Seq, precision: str) -> PlainEngine:
    """Return the plain engine, with 8-bit linear maps where int8 is asked for."""
    if precision == "int8":
        model = quantize_linears(deepcopy(model))  # pyright: ignore
    return PlainEngine(model, PlainDecoder(with_packed_output(model.eval())))
