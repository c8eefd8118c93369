"""The Transformer's decoder: it looks back at what it wrote, and across at what it reads."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.mask import Mask
from regard.model.cache import KeysValues
from regard.model.feed_forward import FeedForward
from regard.model.multihead import MultiHeadAttention
from regard.model.residual import Residual


@dataclass(frozen=True, eq=False)
class LayerMemory:
    """What one layer looks at besides its input: the source, and the target tokens before this call, if any."""

    across: KeysValues
    back: KeysValues | None


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

    def remember(self, source: Float[Tensor, "B S D"], positions: Int[Tensor, "1 S"]) -> LayerMemory:
        """Projects what this layer will look at across."""
        return LayerMemory(self.cross_attention.keys_values(source, source, positions), None)

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        memory: LayerMemory,
        real: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], LayerMemory]:
        """Gives the output, and the memory with these tokens in it. Several hypotheses may share one source."""
        back, across = masks
        seen = memory.back

        def look_back(h: Tensor) -> Tensor:
            nonlocal seen
            out, seen = self.attention.look_back(h, seen, positions, back)
            return out

        def look_across(h: Tensor) -> Tensor:
            by_source = h.reshape(len(memory.across.k), -1, h.shape[-1])  # hypotheses become queries of one sentence
            places = positions.new_zeros(1, by_source.shape[1])
            return self.cross_attention.attend(by_source, memory.across, places, across).view_as(h)

        x = self.after_attention(x, look_back, real)
        x = self.after_cross_attention(x, look_across, real)
        return self.after_feed_forward(x, self.feed_forward, real), LayerMemory(memory.across, seen)


class Decoder(nn.Module):
    """Layers one after another, and a last norm where the layers have theirs before."""

    def __init__(self, layers: list[DecoderLayer], last_norm: nn.Module | None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last_norm = last_norm

    def remember(self, source: Float[Tensor, "B S D"]) -> list[LayerMemory]:
        """Projects the encoder's output for each layer, once."""
        places = source.new_zeros(1, source.shape[1]).long()
        return [layer.remember(source, places) for layer in self.layers]  # pyright: ignore[reportCallIssue]

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        positions: Int[Tensor, "#R T"],
        masks: tuple[Mask, Mask],
        memory: list[LayerMemory],
        real: Bool[Tensor, "R T"] | None,
    ) -> tuple[Float[Tensor, "R T D"], list[LayerMemory]]:
        after = []
        for layer, seen in zip(self.layers, memory, strict=True):
            x, seen = layer(x, positions, masks, seen, real)
            after.append(seen)
        return x if self.last_norm is None else self.last_norm(x, real), after
