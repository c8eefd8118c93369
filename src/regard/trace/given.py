"""A look at weights that another program computed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.trace.look import Look
from regard.trace.stored import Stored
from regard.trace.terms import Terms


@dataclass(frozen=True, eq=False, repr=False)
class GivenLook(Look):
    """Weights as they were handed over; what they were made of is not known."""

    kind: str
    layer: int
    given: Float[Tensor, "H Q K"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        heads, queries, keys = self.given.shape
        return heads, queries, keys

    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        chosen = self.given[self._heads(head)]
        return chosen if head is None else chosen[0]

    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        raise ValueError(self._missing("scores"))

    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        return self.weights(head) > 0

    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        raise ValueError(self._missing("outputs"))

    def terms(self, head: int | None = None) -> Terms:
        raise ValueError(self._missing("terms"))

    def error(self) -> float:
        return torch.nan

    def store(self) -> Stored:
        return Stored({"form": "given", "kind": self.kind, "layer": self.layer}, {"given": self.given})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "GivenLook":
        """Puts the look together again."""
        return cls(notes["kind"], notes["layer"], tensors["given"])

    def _missing(self, what: str) -> str:
        return f"{what} must be recorded in the run, and of {self.kind} layer {self.layer} only weights were given"
