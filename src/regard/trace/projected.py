"""A look whose output is known only after the heads were projected together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from regard.trace.look import Look
from regard.trace.recorded import RecordedLook
from regard.trace.stored import Stored, below, present
from regard.trace.terms import Terms, share


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedLook(Look):
    """Another look, checked against `concat(heads) Wᵀ + b`, which is all that the layer put out."""

    look: RecordedLook
    weight: Float[Tensor, "D D2"]
    offset: Float[Tensor, " D"] | None
    whole: Float[Tensor, "Q D"]

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.look.kind

    @property
    def layer(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.look.layer

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.look.sizes

    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        return self.look.weights(head)

    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        return self.look.scores(head, bias)

    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        return self.look.allowed(head)

    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        return self.look.output(head)

    def terms(self, head: int | None = None) -> Terms:
        return self.look.terms(head)

    def error(self) -> float:
        made = self.output().transpose(0, 1).flatten(1) @ self.weight.T
        made = made if self.offset is None else made + self.offset
        return share(made - self.whole, self.whole)

    def store(self) -> Stored:
        inside = self.look.store()
        tensors = {"weight": self.weight, "whole": self.whole, **present(offset=self.offset)}
        return Stored({**inside.notes, "form": "projected"}, {**tensors, **inside.under("look")})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "ProjectedLook":
        """Puts the look together again."""
        look = RecordedLook.restore(notes, below(tensors, "look"))
        return cls(look, tensors["weight"], tensors.get("offset"), tensors["whole"])
