"""The decoder-only model: a stack of causal self-attention layers."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch, Source
from regard.mask import causal
from regard.model.layers import Embedding, Output
from regard.model.multihead import KeysValues
from regard.model.seq2seq import Seq2Seq, State, hypothesis_rows
from regard.model.transformer import Encoder


@dataclass(frozen=True, eq=False)
class DecoderOnlyState(State):
    """The cache of every layer, and how many tokens were read."""

    layers: list[KeysValues | None]  # None where nothing was read yet
    n_rows: int
    n_hypotheses: int
    length: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "DecoderOnlyState":
        layers = [None if cache is None else cache.select_rows(rows) for cache in self.layers]
        return DecoderOnlyState(layers, len(rows), self.n_hypotheses, self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "DecoderOnlyState":
        return self.reorder(hypothesis_rows(sentences, self.n_hypotheses))


class DecoderOnly(Seq2Seq):
    """Layers of self-attention under a causal mask (Radford et al. 2018).

    The layers are the encoder's. As a sequence-to-sequence model it is one with an empty source, so that training,
    searches and traces are those of all models.
    """

    def __init__(self, tgt: Embedding, decoder: Encoder, output: Output):
        super().__init__()
        self.tgt = tgt
        self.decoder = decoder
        self.output = output
        self.limit = tgt.position.limit

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        tgt = batch.tgt
        return self.decoder(self.tgt(tgt.inputs, tgt.positions), tgt.positions, tgt.mask, tgt.token_mask)

    def start(self, src: Source, n_hypotheses: int) -> DecoderOnlyState:
        empty: list[KeysValues | None] = [None] * len(self.decoder.layers)
        return DecoderOnlyState(empty, len(src.lengths) * n_hypotheses, n_hypotheses, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], DecoderOnlyState]:
        return self.advance(tokens[:, None], state)

    def advance(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R V"], DecoderOnlyState]:
        """Read several tokens at once for each hypothesis, such as a prompt, and return the logits of the next."""
        assert isinstance(state, DecoderOnlyState), f"a decoder continues its own states, got {type(state)}"
        assert len(tokens) == state.n_rows, f"there must be tokens for each of {state.n_rows} rows, got {len(tokens)}"
        positions = torch.arange(state.length, state.length + tokens.shape[1], device=tokens.device)[None]
        x, mask = self.tgt(tokens, positions), causal(offset=state.length)
        caches: list[KeysValues | None] = []
        for layer, cache in zip(self.decoder.layers, state.layers, strict=True):
            x, cache = layer(x, positions, mask, None, cache)
            caches.append(cache)
        last = x[:, -1:] if self.decoder.last_norm is None else self.decoder.last_norm(x[:, -1:], None)
        after = DecoderOnlyState(caches, state.n_rows, state.n_hypotheses, state.length + tokens.shape[1])
        return self.output(last[:, 0]), after
