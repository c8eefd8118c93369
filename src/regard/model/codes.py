"""The codes that a position scheme adds to tokens, made before they are needed."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.position import Position

KNOWN_PLACES = 512  # whose codes are kept; others are made when a sentence gets there


class Codes:
    """What is added to each place's token: to words like these, by a scheme that only adds."""

    def __init__(self, position: Position, words: Float[Tensor, "V D"]):
        self.position = position
        self.known = words.new_zeros(0, words.shape[1])
        self.known = self._made(0, min(KNOWN_PLACES, position.limit or KNOWN_PLACES))

    def at(self, first: int, end: int) -> Float[Tensor, "T D"]:
        """Gives the codes of some places in a row."""
        return self.known[first:end] if end <= len(self.known) else self._made(first, end)

    def _made(self, first: int, end: int) -> Tensor:
        """A code is what a token becomes that is all zeros."""
        nothing = self.known.new_zeros(1, end - first, self.known.shape[1])
        with torch.no_grad():
            return self.position.embed(nothing, torch.arange(first, end, device=nothing.device)[None])[0].contiguous()
