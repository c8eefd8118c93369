"""What belongs to each place by a position scheme, made before it is needed."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.position import Position

KNOWN_PLACES = 512  # whose codes are kept; others are made when a sentence gets there


class Codes:
    """What is added to each place's token, to words like these; and what heads of so many features are turned by.

    For each pair of features a turn is its cosine and its sine.
    """

    def __init__(self, position: Position, words: Float[Tensor, "V D"], turned: int = 0):
        self.position = position
        self.turned = turned
        self.nothing = words.new_zeros(words.shape[1])
        self.known = self._made(0, min(KNOWN_PLACES, position.limit or KNOWN_PLACES))

    def at(self, first: int, end: int) -> Float[Tensor, "T C"]:
        """Gives the codes of some places in a row."""
        return self.known[first:end] if end <= len(self.known) else self._made(first, end)

    def _made(self, first: int, end: int) -> Tensor:
        """What is added is what a token becomes that is all zeros, and a turn what pairs of 1 and 0 become."""
        positions = torch.arange(first, end, device=self.nothing.device)[None]
        ones = self.nothing.new_zeros(1, 1, end - first, self.turned)
        ones[..., ::2] = 1.0
        with torch.no_grad():
            added = self.position.embed(self.nothing.expand(1, end - first, -1), positions)[0]
            turns = self.position.rotate(ones, positions)[0, 0]
        return torch.cat([added, turns], dim=-1).contiguous()
