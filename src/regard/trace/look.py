"""The view of one attention: what each of its heads looked at."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.trace.stored import Stored
from regard.trace.terms import Terms

KINDS = ("encoder", "decoder", "cross")


class Look(ABC):
    """One layer's attention in one run, of `n_queries` tokens to `n_keys`, made when asked for, head by head.

    `kind` is encoder, decoder or cross, layers and heads are counted from 0. Without a head, all come stacked.
    """

    kind: str
    layer: int

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int]:
        """The number of heads, of queries and of keys."""

    @property
    def n_heads(self) -> int:
        return self.sizes[0]

    @abstractmethod
    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        """Gives the weight of each key for each query; a query that may look at nothing has zeros."""

    @abstractmethod
    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        """Gives the scores before the softmax, of forbidden pairs too; the position scheme's bias may be left out."""

    @abstractmethod
    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        """Tells which keys each query may look at."""

    @abstractmethod
    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        """Gives what each query took from the values it saw."""

    @abstractmethod
    def terms(self, head: int | None = None) -> Terms:
        """Splits the scores into the terms that add up to them."""

    @abstractmethod
    def error(self) -> float:
        """Gives the largest difference of `weights @ v` from what the layer put out, as a share of the largest number.

        Not a number where the layer's output is not known.
        """

    @abstractmethod
    def store(self) -> Stored:
        """Takes the look apart for a file."""

    def entropy(self, head: int | None = None) -> Float[Tensor, "*H Q"]:
        """Gives the entropy of each query's weights in nats: 0 where it looks at one key alone."""
        return torch.special.entr(self.weights(head)).sum(-1)

    def __repr__(self) -> str:
        heads, queries, keys = self.sizes
        return f"Look({self.kind} layer {self.layer}: {heads} heads, {queries} queries, {keys} keys)"

    def _heads(self, head: int | None) -> range:
        """Gives the heads that are asked for, or says which there are."""
        if head is None:
            return range(self.n_heads)
        if not 0 <= head < self.n_heads:
            raise ValueError(f"head must lie in 0 … {self.n_heads - 1} of {self.kind} layer {self.layer}, got {head}")
        return range(head, head + 1)
