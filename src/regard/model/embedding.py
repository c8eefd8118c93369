"""Token ids become vectors, with their positions."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.model.dropout import Dropout
from regard.model.factored import FactoredTable
from regard.position import Position


class Embedding(nn.Module):
    """`√D · table[ids]`, joined with positions, dropped out while training (arXiv:1706.03762, 3.4 and 3.5)."""

    def __init__(self, table: nn.Embedding | FactoredTable, position: Position, dropout: float):
        super().__init__()
        self.table = table
        self.position = position
        self.dropout = Dropout(dropout)

    def forward(self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D"]:
        vectors = self.table(ids) * self.table.embedding_dim**0.5
        return self.dropout(self.position.embed(vectors, positions))


def make_table(vocab_size: int, width: int, pad_id: int) -> nn.Embedding:
    """Makes a table whose scaled vectors have variance 1; padding has none."""
    table = nn.Embedding(vocab_size, width, padding_idx=pad_id)
    nn.init.normal_(table.weight, std=width**-0.5)
    table.weight.data[pad_id].zero_()
    return table


class Output(nn.Module):
    """Vectors become logits: a linear map without bias, which may share the table of the tokens."""

    def __init__(self, table: nn.Embedding | FactoredTable):
        super().__init__()
        self.table = table

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        return F.linear(x, self.table.weight)
