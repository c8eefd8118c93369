"""One sub-layer in the residual stream: dropout, sum and normalisation."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.model.dropout import Dropout


class Residual(nn.Module):
    """`norm(x + dropout(f(x)))`, or with the norm before the sub-layer `x + dropout(f(norm(x)))` (arXiv:2002.04745)."""

    def __init__(self, norm: nn.Module, norm_first: bool, dropout: float):
        super().__init__()
        self.norm = norm
        self.norm_first = norm_first
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        sublayer: Callable[[Float[Tensor, "B T D"]], Float[Tensor, "B T D"]],
        real: Bool[Tensor, "B T"] | None,
    ) -> Float[Tensor, "B T D"]:
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x, real)))
        return self.norm(x + self.dropout(sublayer(x)), real)
