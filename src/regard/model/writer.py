"""A GRU that writes one token at a time."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.dropout import Dropout


class Writer(nn.Module):
    """Layers of GRU cells, each reading the one below (Cho et al. 2014, arXiv:1406.1078)."""

    def __init__(self, d_input: int, width: int, n_layers: int, dropout: float):
        super().__init__()
        self.width = width
        self.cells = nn.ModuleList([nn.GRUCell(width if layer else d_input, width) for layer in range(n_layers)])
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "R D2"], hidden: Float[Tensor, "L R D"]
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "L R D"]]:
        """Gives the top layer's new state, and all of them."""
        after = []
        for layer, cell in enumerate(self.cells):
            x = cell(self.dropout(x) if layer else x, hidden[layer])
            after.append(x)
        return x, torch.stack(after)
