"""The position as a share of the sentence's length."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.position.absolute import Absolute


class Normalised(Absolute):
    """Codes position p of T by `p / (T − 1)` in every feature (S5.1), T − 1 being the last position of the row.

    Bounded by 1, but a step means something else in every sentence, and a decoder that writes word by word cannot know
    T: only encoders can use it.
    """

    def codes(self, positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        if positions.numel() == 0:
            return positions.new_zeros(*positions.shape, self.width, dtype=torch.float64)
        last = positions.amax(dim=-1, keepdim=True).clamp(min=1)  # a sentence of one token stands at 0
        share = positions.to(torch.float64) / last
        return share[..., None].expand(*share.shape, self.width)
