"""The position-wise feed-forward network."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import choose
from regard.model.dropout import Dropout
from regard.model.linear import Linear, is_learning
from regard.model.shard import is_shard

ACTIVATION = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class FeedForward(nn.Module):
    """`W_2 activation(W_1 x)`, each token by itself (arXiv:1706.03762, 3.3). 2 D F parameters."""

    def __init__(self, d_model: int, d_ff: int, activation: str, dropout: float):
        super().__init__()
        self.activation = choose(ACTIVATION, activation, "activation")
        self.inner = Linear(d_model, d_ff)
        self.outer = Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        inner, outer = self.inner, self.outer
        if self.activation is F.relu and self.training and is_learning(x) and not is_shard(inner.weight):
            from regard.kernel.feed_forward import feed_forward  # only there is Triton installed

            return feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, self.dropout.rate)
        return outer(self.dropout(self.activation(inner(x))))
