"""Encoder, decoder, Transformer."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.mask import Mask, causal
from regard.model.layers import Embedding, FeedForward, Output
from regard.model.multihead import KeysValues, MultiHeadAttention
from regard.model.norm import Residual
from regard.model.seq2seq import Seq2Seq, State


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each in its residual."""

    def __init__(self, attention: MultiHeadAttention, feed_forward: FeedForward, residuals: list[Residual]):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.after_attention, self.after_feed_forward = residuals

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        positions: Int[Tensor, "#B T *axes"],
        mask: Mask,
        real: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        x = self.after_attention(x, lambda h: self.attention.self_attend(h, None, positions, mask)[0], real)
        return self.after_feed_forward(x, self.feed_forward, real)


class Encoder(nn.Module):
    """Layers one after another, and a last norm where the layers have theirs before."""

    def __init__(self, layers: list[EncoderLayer], last_norm: nn.Module | None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last_norm = last_norm

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        positions: Int[Tensor, "#B T *axes"],
        mask: Mask,
        real: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        for layer in self.layers:
            x = layer(x, positions, mask, real)
        return x if self.last_norm is None else self.last_norm(x, real)


@dataclass(frozen=True, eq=False)
class LayerCache:
    """What one layer looks at besides its input: the source, and the target tokens before this call, if any."""

    source: KeysValues
    target: KeysValues | None


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the encoder, and a feed-forward network, each in its residual."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: FeedForward,
        residuals: list[Residual],
    ):
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.after_attention, self.after_cross_attention, self.after_feed_forward = residuals

    def project_source(self, source: Float[Tensor, "B S D"], positions: Int[Tensor, "1 S"]) -> LayerCache:
        """Projects what this layer will look at across."""
        return LayerCache(self.cross_attention.keys_values(source, source, positions), None)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        memory: LayerCache,
        real: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], LayerCache]:
        """Gives the output, and the memory with these tokens in it. Several hypotheses may share one source."""
        back, across = masks
        seen = memory.target

        def look_back(h: Tensor) -> Tensor:
            nonlocal seen
            out, seen = self.attention.self_attend(h, seen, positions, back)
            return out

        def look_across(h: Tensor) -> Tensor:
            by_source = h.reshape(len(memory.source.k), -1, h.shape[-1])  # hypotheses become queries of one sentence
            places = positions.new_zeros(1, by_source.shape[1])
            return self.cross_attention.attend(by_source, memory.source, places, across).view_as(h)

        x = self.after_attention(x, look_back, real)
        x = self.after_cross_attention(x, look_across, real)
        return self.after_feed_forward(x, self.feed_forward, real), LayerCache(memory.source, seen)


class Decoder(nn.Module):
    """Layers one after another, and a last norm where the layers have theirs before."""

    def __init__(self, layers: list[DecoderLayer], last_norm: nn.Module | None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last_norm = last_norm

    def project_source(self, source: Float[Tensor, "B S D"]) -> list[LayerCache]:
        """Projects the encoder's output for each layer, once."""
        places = source.new_zeros(1, source.shape[1]).long()
        return [layer.project_source(source, places) for layer in self.layers]  # pyright: ignore[reportCallIssue]

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        memory: list[LayerCache],
        real: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], list[LayerCache]]:
        after = []
        for layer, seen in zip(self.layers, memory, strict=True):
            x, seen = layer(x, positions, masks, seen, real)
            after.append(seen)
        return x if self.last_norm is None else self.last_norm(x, real), after


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """What every layer has seen, who may look at the source, and how many tokens were written."""

    layers: list[LayerCache]
    mask: Mask
    n_hypotheses: int
    length: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "TransformerState":
        layers = [
            LayerCache(seen.source, None if seen.target is None else seen.target.select_rows(rows))
            for seen in self.layers
        ]
        return TransformerState(layers, self.mask, self.n_hypotheses, self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "TransformerState":
        rows = (
            sentences[:, None] * self.n_hypotheses + torch.arange(self.n_hypotheses, device=sentences.device)
        ).flatten()
        layers = [
            LayerCache(
                seen.source.select_rows(sentences), None if seen.target is None else seen.target.select_rows(rows)
            )
            for seen in self.layers
        ]
        mask = self.mask.select(sentences)
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
        memory = self.decoder.project_source(self.encode(src))
        x = self.tgt(tgt.inputs, tgt.positions)
        x, _ = self.decoder(x, tgt.positions, (tgt.mask, src.mask), memory, tgt.token_mask)
        return x

    def encode(self, src: Source) -> Float[Tensor, "B S D"]:
        """Gives the encoder's output for each source token."""
        places = torch.arange(src.ids.shape[1], device=src.ids.device)
        x = self.src(src.ids, src.positions)
        return self.encoder(x, src.positions, src.mask, places < src.lengths[:, None])

    def start(self, src: Source, n_hypotheses: int) -> TransformerState:
        return TransformerState(self.decoder.project_source(self.encode(src)), src.mask, n_hypotheses, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], TransformerState]:
        assert isinstance(state, TransformerState), f"a Transformer continues its own states, got {type(state)}"
        places = torch.full((1, 1), state.length, device=tokens.device)
        x = self.tgt(tokens[:, None], places)
        masks = (causal(offset=state.length), state.mask)
        x, layers = self.decoder(x, places, masks, state.layers, None)
        after = TransformerState(layers, state.mask, state.n_hypotheses, state.length + 1)
        return self.output(x[:, 0]), after
