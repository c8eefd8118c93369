"""A learned code for each position."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.position.absolute import Absolute


class Learned(Absolute):
    """Codes position p by row p of a learned table (Gehring et al. 2017, arXiv:1705.03122).

    `max_len · width` parameters; positions past the table's end are refused.
    """

    def __init__(self, width: int, max_len: int = 1024, join: str = "add"):
        super().__init__(width, join, max_len)
        # The usual small start (BERT, GPT-2): far below the token vectors, so that order is learned, not forced.
        self.table: Float[Tensor, "P D"] = nn.Parameter(torch.randn(max_len, width) * 0.02)

    def codes(self, positions: Int[Tensor, "*B"]) -> Float[Tensor, "*B D"]:
        return self.table[positions]
