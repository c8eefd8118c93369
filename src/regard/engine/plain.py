"""The plain engine: any PyTorch model, searched step by step as `search/` defines."""

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import make_source
from regard.engine import Engine
from regard.model.quantize import quantize_linears
from regard.model.seq2seq import Seq2Seq, State, allowed_log_probs, top_k
from regard.padding import Ids
from regard.search.decoder import DecoderState, IncrementalDecoder, TopK


class PlainState(DecoderState):
    """A model's own state, moved by NumPy's indices."""

    def __init__(self, state: State, device: torch.device):
        self.state = state
        self.device = device

    def reorder(self, rows: Int[np.ndarray, " R"]) -> "PlainState":
        return PlainState(self.state.reorder(torch.from_numpy(rows).to(self.device)), self.device)

    def keep(self, sentences: Int[np.ndarray, " M"]) -> "PlainState":
        return PlainState(self.state.keep(torch.from_numpy(sentences).to(self.device)), self.device)


class PlainDecoder(IncrementalDecoder):
    """A PyTorch model, asked from NumPy."""

    def __init__(self, model: Seq2Seq):
        self.model = model
        self.limit = model.limit

    @torch.inference_mode()
    def start(self, sources: Sequence[Ids], n_hypotheses: int) -> PlainState:
        device = next(self.model.parameters()).device
        return PlainState(self.model.start(make_source(sources).to(device), n_hypotheses), device)

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
        logits, after = self.model.step(torch.from_numpy(tokens).to(device), state.state)
        must = None if forced is None else torch.from_numpy(forced).to(device)
        return allowed_log_probs(logits, must), PlainState(after, device)


class PlainEngine(Engine):
    """A PyTorch model as it is, in evaluation mode from now on."""

    def __init__(self, model: Seq2Seq):
        self._model = model.eval()
        self._decoder = PlainDecoder(model)

    @property
    def model(self) -> Seq2Seq:
        return self._model

    @property
    def decoder(self) -> PlainDecoder:
        return self._decoder


def plain_engine(model: Seq2Seq, precision: str) -> PlainEngine:
    """Return the plain engine, with 8-bit linear maps where int8 is asked for."""
    return PlainEngine(quantize_linears(deepcopy(model)) if precision == "int8" else model)  # pyright: ignore
