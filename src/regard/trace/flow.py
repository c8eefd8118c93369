"""How long the vectors of the residual stream are, before and after each sub-layer."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Flow:
    """One sub-layer in the stream: for each token the norms of what came in, of what was added, and of what went on."""

    stack: str  # encoder or decoder
    layer: int
    sublayer: str  # attention, cross_attention or feed_forward
    before: Float[Tensor, " T"]
    update: Float[Tensor, " T"]
    after: Float[Tensor, " T"]
