"""Splitting features into heads, merging heads into features: the only place that does either."""

from jaxtyping import Float
from torch import Tensor


def split_heads(x: Float[Tensor, "B T D"], n_heads: int) -> Float[Tensor, "B H T E"]:
    """Cuts each token's features into `n_heads` equal parts."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B H T E"]) -> Float[Tensor, "B T D"]:
    """Sets the heads' features side by side again."""
    return x.transpose(1, 2).flatten(2)
