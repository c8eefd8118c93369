"""A model without residual connections: what a sub-layer puts out replaces the stream instead of being added to it."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.model import Seq2Seq
from regard.model.residual import Residual


class Bare(nn.Module):
    """A residual without its sum: `norm(dropout(f(x)))`, or, the norm before the sub-layer, `dropout(f(norm(x)))`."""

    def __init__(self, residual: Residual):
        super().__init__()
        self.norm = residual.norm
        self.norm_first = residual.norm_first
        self.dropout = residual.dropout

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        sublayer: Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]],
        real: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        if self.norm_first:
            return self.dropout(sublayer(self.norm(x, real)))
        return self.norm(self.dropout(sublayer(x)), real)


def without_residuals(model: Seq2Seq) -> Seq2Seq:
    """Takes the residual connections out of a model, in place; its parameters stay what they are."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is Residual:
                setattr(module, name, Bare(child))
    return model
