"""The Transformer's encoder."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.mask import Mask
from regard.model.feed_forward import FeedForward
from regard.model.multihead import MultiHeadAttention
from regard.model.residual import Residual


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
        x = self.after_attention(x, lambda h: self.attention.look_back(h, None, positions, mask)[0], real)
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
