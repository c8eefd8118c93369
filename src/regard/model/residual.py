"""One sub-layer in the residual stream: dropout, sum and normalisation."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.model.dropout import Dropout
from regard.model.norm import Joining


class Residual(nn.Module):
    """`norm(x + dropout(f(x)))`, or with the norm before the sub-layer `x + dropout(f(norm(x)))` (arXiv:2002.04745)."""

    def __init__(self, norm: Joining, norm_first: bool, dropout: float):
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
            return self._sum(x, sublayer(self.norm(x, real)))
        return self.norm.join(x, sublayer(x), self.dropout, real)

    def _sum(self, x: Tensor, update: Tensor) -> Tensor:
        if not (update.is_cuda and self.training and update.dtype.itemsize <= 4):
            return x + self.dropout(update)
        from regard.kernel.add_dropout import add_dropout  # only there is Triton installed

        return add_dropout(x, update, self.dropout.rate)
