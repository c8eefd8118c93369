"""The Transformer, and the decoder-only model: their layers, stacks and caches."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.batch import Batch, Source
from regard.mask import Mask, causal
from regard.model.layers import Embedding, FeedForward, Output
from regard.model.multihead import KeysValues, MultiHeadAttention
from regard.model.norm import Norm, Residual
from regard.model.seq2seq import Seq2Seq, State, hypothesis_rows
from regard.shapes import Bool, Float, Int


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each with a residual connection."""

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
        token_mask: Bool[Tensor, "B T"] | None,
        cache: KeysValues | None = None,
    ) -> tuple[Float[Tensor, "B T D"], KeysValues]:
        """Return the output, and the cache with these tokens in it."""
        h = self.after_attention.before(x, token_mask)
        update, cache = self.attention.self_attend(h, cache, positions, mask)
        x = self.after_attention(x, update, token_mask)
        h = self.after_feed_forward.before(x, token_mask)
        return self.after_feed_forward(x, self.feed_forward(h), token_mask), cache


class Encoder(nn.Module):
    """Layers one after another, and a last norm where the layers have theirs first."""

    def __init__(self, layers: list[EncoderLayer], last_norm: Norm | None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last_norm = last_norm

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        positions: Int[Tensor, "#B T *axes"],
        mask: Mask,
        token_mask: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        for layer in self.layers:
            x, _ = layer(x, positions, mask, token_mask)
        return x if self.last_norm is None else self.last_norm(x, token_mask)


@dataclass(frozen=True, eq=False)
class LayerCache:
    """Keys and values that one decoder layer attends to: of the source, and of the target tokens so far, if any."""

    source: KeysValues
    target: KeysValues | None

    def select(self, rows: Int[Tensor, " R"], sentences: Int[Tensor, " M"] | None = None) -> "LayerCache":
        """Return some rows of the target, and some sentences of the source, or all."""
        source = self.source if sentences is None else self.source.select_rows(sentences)
        return LayerCache(source, None if self.target is None else self.target.select_rows(rows))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, and a feed-forward network, each with a residual connection."""

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
        """Project the encoder's output to this layer's keys and values."""
        return LayerCache(self.cross_attention.keys_values(source, source, positions), None)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        cache: LayerCache,
        token_mask: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], LayerCache]:
        """Return the output, and the cache with these tokens in it. Several hypotheses may share one source."""
        self_mask, cross_mask = masks
        h = self.after_attention.before(x, token_mask)
        update, target = self.attention.self_attend(h, cache.target, positions, self_mask)
        x = self.after_attention(x, update, token_mask)
        h = self.after_cross_attention.before(x, token_mask)
        x = self.after_cross_attention(x, self._cross_attend(h, cache.source, cross_mask), token_mask)
        h = self.after_feed_forward.before(x, token_mask)
        return self.after_feed_forward(x, self.feed_forward(h), token_mask), LayerCache(cache.source, target)

    def _cross_attend(self, h: Float[Tensor, "R T D"], source: KeysValues, mask: Mask) -> Float[Tensor, "R T D"]:
        queries = h.reshape(len(source.k), -1, h.shape[-1])  # all hypotheses of a sentence share its keys
        positions = source.positions.new_zeros(1, queries.shape[1])
        return self.cross_attention.attend(queries, source, positions, mask).view_as(h)


class Decoder(nn.Module):
    """Layers one after another, and a last norm where the layers have theirs first."""

    def __init__(self, layers: list[DecoderLayer], last_norm: Norm | None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last_norm = last_norm

    def project_source(self, source: Float[Tensor, "B S D"]) -> list[LayerCache]:
        """Project the encoder's output to the keys and values of each layer, once."""
        positions = source.new_zeros(1, source.shape[1]).long()
        return [layer.project_source(source, positions) for layer in self.layers]  # pyright: ignore[reportCallIssue]

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        caches: list[LayerCache],
        token_mask: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], list[LayerCache]]:
        after = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, positions, masks, cache, token_mask)
            after.append(cache)
        return x if self.last_norm is None else self.last_norm(x, token_mask), after


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """The cache of every layer, the mask of the source, and how many target tokens were read."""

    layers: list[LayerCache]
    mask: Mask
    n_hypotheses: int
    length: int

    def reorder(self, rows: Int[Tensor, " R"]) -> "TransformerState":
        layers = [cache.select(rows) for cache in self.layers]
        return TransformerState(layers, self.mask, self.n_hypotheses, self.length)

    def keep(self, sentences: Int[Tensor, " M"]) -> "TransformerState":
        rows = hypothesis_rows(sentences, self.n_hypotheses)
        layers = [cache.select(rows, sentences) for cache in self.layers]
        return TransformerState(layers, self.mask.select(sentences), self.n_hypotheses, self.length)


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
        caches = self.decoder.project_source(self.encode(src))
        x = self.tgt(tgt.inputs, tgt.positions)
        x, _ = self.decoder(x, tgt.positions, (tgt.mask, src.mask), caches, tgt.token_mask)
        return x

    def encode(self, src: Source) -> Float[Tensor, "B S D"]:
        """Return the encoder's output for each source token."""
        x = self.src(src.ids, src.positions)
        return self.encoder(x, src.positions, src.mask, src.token_mask)

    def start(self, src: Source, n_hypotheses: int) -> TransformerState:
        return TransformerState(self.decoder.project_source(self.encode(src)), src.mask, n_hypotheses, 0)

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], TransformerState]:
        assert isinstance(state, TransformerState), f"a Transformer continues its own states, got {type(state)}"
        positions = torch.full((1, 1), state.length, device=tokens.device)
        x = self.tgt(tokens[:, None], positions)
        masks = (causal(offset=state.length), state.mask)
        x, layers = self.decoder(x, positions, masks, state.layers, None)
        after = TransformerState(layers, state.mask, state.n_hypotheses, state.length + 1)
        return self.output(x[:, 0]), after


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
