"""Patches of pictures become vectors, with their positions."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.model.dropout import Dropout
from regard.model.linear import Linear
from regard.position import Position


class Patches(nn.Module):
    """`W x + b` of each patch's numbers, joined with positions, dropped out while training (arXiv:2010.11929, 3.1)."""

    def __init__(self, d_patch: int, d_model: int, position: Position, dropout: float):
        super().__init__()
        self.project = Linear(d_patch, d_model)
        self.position = position
        self.dropout = Dropout(dropout)
        nn.init.xavier_uniform_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def forward(self, patches: Float[Tensor, "B T P"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D"]:
        return self.dropout(self.position.embed(self.project(patches), positions))
