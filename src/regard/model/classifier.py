"""The classifier: an encoder reads tokens that stand anywhere, a pool of them becomes one class."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from regard.config import choose
from regard.mask import Mask, padding
from regard.model.encoder import Encoder
from regard.model.linear import Linear

OWN_TOKEN = {"class": True, "mean": False}


class Classifier(nn.Module):
    """`logits = W pool(encoder(embedding(tokens, positions))) + b`.

    The pool is the mean over real tokens, or what a learned token of its own, set before the others, has gathered
    (arXiv:2010.11929, 3.1). That token stands at coordinates 0 and gets no code there. Where the scheme opens no door
    the encoder sees a set: the logits are the same for every order of the tokens.
    """

    def __init__(self, embedding: nn.Module, encoder: Encoder, d_model: int, n_classes: int, pool: str = "class"):
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"n_classes must be 2 or more, got {n_classes}")
        self.embedding = embedding
        self.encoder = encoder
        own = choose(OWN_TOKEN, pool, "pool")
        self.own_token: Float[Tensor, " D"] | None = nn.Parameter(torch.randn(d_model) * 0.02) if own else None
        self.output = Linear(d_model, n_classes)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(
        self,
        tokens: Shaped[Tensor, "B T *P"],
        positions: Int[Tensor, "#B T *axes"],
        lengths: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B C"]:
        """Gives the logits of each class; without lengths every token is real."""
        x = self.embedding(tokens, positions)
        if self.own_token is not None:
            x = torch.cat([self.own_token.expand(len(x), 1, -1), x], dim=1)
            positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
            lengths = None if lengths is None else lengths + 1
        T = x.shape[1]
        mask = Mask() if lengths is None else padding(lengths, T)
        real = None if lengths is None else torch.arange(T, device=x.device) < lengths[:, None]
        x = self.encoder(x, positions, mask, real)
        return self.output(x[:, 0] if self.own_token is not None else mean_of_real(x, real))


def mean_of_real(x: Float[Tensor, "B T D"], real: Bool[Tensor, "B T"] | None) -> Float[Tensor, "B D"]:
    """Gives the mean over the tokens that are no padding; of none it is 0."""
    if real is None:
        return x.mean(dim=1)
    share = real[..., None].to(x.dtype)
    return (x * share).sum(dim=1) / share.sum(dim=1).clamp(min=1.0)
