"""Two ways to join a position's code with a token's vector."""

import torch
from jaxtyping import Float
from torch import Tensor


def add(x: Float[Tensor, "B T D"], codes: Float[Tensor, "#B T D2"]) -> Float[Tensor, "B T D"]:
    """Adds the code to the vector: no extra width, but vector and code share it."""
    if codes.shape[-1] != x.shape[-1]:
        raise ValueError(f"codes to be added must be as wide as the vectors, {x.shape[-1]}, got {codes.shape[-1]}")
    return x + codes


def concatenate(x: Float[Tensor, "B T D"], codes: Float[Tensor, "#B T D2"]) -> Float[Tensor, "B T D3"]:
    """Sets the code beside the vector: each keeps its own features, and every layer that follows is wider."""
    return torch.cat([x, codes.expand(x.shape[0], -1, -1)], dim=-1)


JOIN = {"add": add, "concatenate": concatenate}
