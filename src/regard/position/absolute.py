"""Absolute schemes: a code for each position, joined with the token's vector."""

from abc import ABC, abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from regard.config import choose
from regard.position.contract import Position, check
from regard.position.join import JOIN


class Absolute(Position, ABC):
    """Opens the `embed` door with a code of `width` features; a subclass says what the code is."""

    def __init__(self, width: int, join: str = "add", limit: int | None = None):
        super().__init__()
        if width < 1:
            raise ValueError(f"width must be 1 or more features, got {width}")
        if limit is not None and limit < 1:
            raise ValueError(f"max_len must be 1 or more positions, got {limit}")
        self.width = width
        self.limit = limit
        self.join = choose(JOIN, join, "join")

    @abstractmethod
    def codes(self, positions: Int[Tensor, "B T *axes"]) -> Float[Tensor, "B T D"]:
        """Gives the code of each position, in float64 where it is a formula."""

    def embed(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, "#B T *axes"]) -> Float[Tensor, "B T D2"]:
        check(positions, self.limit, n_axes=self.n_axes)
        return self.join(x, self.codes(positions).to(x.dtype))
