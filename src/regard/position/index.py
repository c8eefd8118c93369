"""The position itself as its code."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute


class Index(Absolute):
    """Codes position p by the number p in every feature (S5.1). Steps are even, but nothing bounds the code."""

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return positions[..., None].to(torch.float64).expand(*positions.shape, self.width)
