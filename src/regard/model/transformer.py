"""The Transformer."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch, Source
from regard.mask import Mask, causal
from regard.model.decoder import Decoder, LayerMemory
from regard.model.embedding import Embedding, Output
from regard.model.encoder import Encoder
from regard.model.seq2seq import Seq2Seq, State


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """What every layer has seen, who may look at the source, and how many tokens were written."""

    layers: list[LayerMemory]
    mask: Mask
    n_hypotheses: int
    length: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "TransformerState":
        layers = [LayerMemory(seen.across, None if seen.back is None else seen.back.rows(rows)) for seen in self.layers]
        return TransformerState(layers, self.mask, self.n_hypotheses, self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "TransformerState":
        rows = (
            sentences[:, None] * self.n_hypotheses + torch.arange(self.n_hypotheses, device=sentences.device)
        ).flatten()
        layers = [
            LayerMemory(seen.across.rows(sentences), None if seen.back is None else seen.back.rows(rows))
            for seen in self.layers
        ]
        mask = self.mask.of(sentences)
        return TransformerState(layers, mask, self.n_hypotheses, self.length)


class Transformer(Seq2Seq):
    """An encoder and a decoder of attention layers (Vaswani et al. 2017, arXiv:1706.03762)."""

    def __init__(self, src: Embedding, tgt: Embedding, encoder: Encoder, decoder: Decoder, output: Output):
        super().__init__()
        self.src = src
        self.tgt = tgt
        self.encoder = encoder
        self.decoder = decoder
        self.output = output
        self.limit = tgt.position.limit

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        src, tgt = batch.src, batch.tgt
        memory = self.decoder.remember(self.read(src))
        x = self.tgt(tgt.read, tgt.positions)
        x, _ = self.decoder(x, tgt.positions, (tgt.mask, src.mask), memory, tgt.real)
        return x

    def read(self, src: Source) -> Float[Tensor, "B S D"]:
        """Gives the encoder's output for each source token."""
        places = torch.arange(src.ids.shape[1], device=src.ids.device)
        x = self.src(src.ids, src.positions)
        return self.encoder(x, src.positions, src.mask, places < src.lengths[:, None])

    def start(self, src: Source, n_hypotheses: int) -> TransformerState:
        return TransformerState(self.decoder.remember(self.read(src)), src.mask, n_hypotheses, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], TransformerState]:
        assert isinstance(state, TransformerState), f"a Transformer continues its own states, got {type(state)}"
        places = torch.full((1, 1), state.length, device=tokens.device)
        x = self.tgt(tokens[:, None], places)
        masks = (causal(offset=state.length), state.mask)
        x, layers = self.decoder(x, places, masks, state.layers, None)
        after = TransformerState(layers, state.mask, state.n_hypotheses, state.length + 1)
        return self.output(x[:, 0]), after
