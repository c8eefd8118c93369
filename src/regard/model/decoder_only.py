"""The decoder-only model: a stack of layers that looks back at what was written, and at nothing else."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch, Source
from regard.mask import Mask, causal
from regard.model.layers import Embedding, Output
from regard.model.multihead import KeysValues
from regard.model.seq2seq import Seq2Seq, State
from regard.model.transformer import Encoder


@dataclass(frozen=True, eq=False)
class DecoderOnlyState(State):
    """What every layer has seen of each hypothesis, and how many tokens that is."""

    layers: list[KeysValues | None]  # None where nothing was read yet
    n_rows: int
    n_hypotheses: int
    length: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "DecoderOnlyState":
        layers = [None if seen is None else seen.select_rows(rows) for seen in self.layers]
        return DecoderOnlyState(layers, len(rows), self.n_hypotheses, self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "DecoderOnlyState":
        n = self.n_hypotheses
        return self.reorder((sentences[:, None] * n + torch.arange(n, device=sentences.device)).flatten())


class DecoderOnly(Seq2Seq):
    """Layers of self-attention under a causal mask (Radford et al. 2018): what follows is read from what is before.

    The layers are the encoder's. As a sequence-to-sequence model it is one whose source says nothing, so that training,
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
        nothing: list[KeysValues | None] = [None] * len(self.decoder.layers)
        return DecoderOnlyState(nothing, len(src.lengths) * n_hypotheses, n_hypotheses, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], DecoderOnlyState]:
        return self.advance(tokens[:, None], state)

    def advance(self, tokens: Int[Tensor, "R T"], state: State) -> tuple[Float[Tensor, "R V"], DecoderOnlyState]:
        """Reads some tokens at once for each hypothesis, such as a prompt, and gives the logits of the next."""
        assert isinstance(state, DecoderOnlyState), f"a decoder continues its own states, got {type(state)}"
        assert len(tokens) == state.n_rows, f"there must be tokens for each of {state.n_rows} rows, got {len(tokens)}"
        places = torch.arange(state.length, state.length + tokens.shape[1], device=tokens.device)[None]
        x, mask = self.tgt(tokens, places), causal(offset=state.length)
        layers: list[KeysValues | None] = []
        for layer, seen in zip(self.decoder.layers, state.layers, strict=True):
            x, seen = _go_on(layer, x, places, mask, seen)
            layers.append(seen)
        last = x[:, -1:] if self.decoder.last_norm is None else self.decoder.last_norm(x[:, -1:], None)
        after = DecoderOnlyState(layers, state.n_rows, state.n_hypotheses, state.length + tokens.shape[1])
        return self.output(last[:, 0]), after


def _go_on(
    layer: Any, x: Float[Tensor, "R T D"], places: Int[Tensor, "1 T"], mask: Mask, seen: KeysValues | None
) -> tuple[Float[Tensor, "R T D"], KeysValues | None]:
    """Lets a layer go on from what it has seen; what it sees now is kept with it."""

    def look_back(h: Tensor) -> Tensor:
        nonlocal seen
        out, seen = layer.attention.self_attend(h, seen, places, mask)
        return out

    x = layer.after_attention(x, look_back, None)
    return layer.after_feed_forward(x, layer.feed_forward, None), seen
