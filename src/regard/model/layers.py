"""Linear layers, dropout, the feed-forward network, embeddings and logits."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import ops
from regard.config import choose
from regard.position import Position
from regard.shapes import Float, Int


class Linear(nn.Linear):
    """`x Wᵀ + b` with PyTorch's parameters; on a GPU with a faster backward pass."""

    def forward(self, input: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        return ops.linear(input, self.weight, self.bias)


class Dropout(nn.Module):
    """Zero a share `rate` of the features while training and scale the others up (Srivastava et al. 2014)."""

    def __init__(self, rate: float):
        super().__init__()
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {rate}")
        self.rate = rate

    def current_rate(self) -> float:
        """Return the share to drop in this call: none outside training."""
        return self.rate if self.training else 0.0

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return ops.dropout(x, self.current_rate())


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
        return ops.feed_forward(x, self.inner, self.outer, self.activation, self.dropout.current_rate())


class FactoredTable(nn.Module):
    """`table = C Uᵀ`: a short code for each token, and one map from codes to vectors (arXiv:1909.11942).

    V E + E D parameters instead of V D. It is used like a table: a call looks rows up, and `weight` is all of it.
    """

    def __init__(self, vocab_size: int, d_embedding: int, width: int, pad_id: int):
        super().__init__()
        self.num_embeddings, self.embedding_dim = vocab_size, width
        self.codes = nn.Embedding(vocab_size, d_embedding, padding_idx=pad_id)
        self.up = nn.Linear(d_embedding, width, bias=False)
        nn.init.normal_(self.up.weight, std=(d_embedding * width) ** -0.5)  # so that scaled vectors have variance 1

    @property
    def weight(self) -> Float[Tensor, "V D"]:
        """The whole table."""
        return self.up(self.codes.weight)

    def forward(self, ids: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return F.linear(self.codes(ids), self.up.weight)


class Embedding(nn.Module):
    """`√D · table[ids]` with positions, dropped out while training (arXiv:1706.03762, 3.4 and 3.5).

    Some models leave √D out, and some normalise the sum (arXiv:1910.13461).
    """

    def __init__(
        self,
        table: nn.Embedding | FactoredTable,
        position: Position,
        dropout: float,
        scaled: bool = True,
        norm: nn.Module | None = None,
    ):
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = Dropout(dropout)
        self.scale = table.embedding_dim**0.5 if scaled else 1.0
        self.norm = norm

    def words(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Return the vectors of tokens, scaled, which positions are to join."""
        return self.table(ids) * self.scale

    def forward(self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D"]:
        x = self.position.embed(self.words(ids), positions)
        return self.dropout(x if self.norm is None else self.norm(x))


def make_table(vocab_size: int, width: int, pad_id: int) -> nn.Embedding:
    """Return a table whose scaled vectors have variance 1; that of padding is zero."""
    table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
    nn.init.normal_(table.weight, std=width**-0.5)
    table.weight.data[pad_id].zero_()
    return table


class Output(nn.Module):
    """Logits of vectors: a linear map, which may share the table of the tokens and may have a bias."""

    def __init__(self, table: nn.Embedding | FactoredTable, bias: bool = False):
        super().__init__()
        self.table = table
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings)) if bias else None

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        return F.linear(x, self.table.weight, self.bias)
