"""Gradients written by hand: they have no gradient themselves, and say so when one is asked for."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]
SECOND_ORDER = (
    "a fast path has no second derivative, which create_graph=True asks for: "
    "take that of `attention.weights(q, k, …) @ v`, or of a plain PyTorch module"
)


def once_differentiable(backward: Callable[..., Gradients]) -> Callable[..., Gradients]:
    """Refuse to make a graph of this backward pass, from which a second derivative would be taken.

    PyTorch's decorator of this name only refuses a path through the pass itself. Where the gradient that comes in is a
    constant, or a parameter has another path too, it takes the result for a constant: a gradient penalty is then wrong
    without a word.
    """

    @wraps(backward)
    def first_order(ctx: Any, *d_outputs: Any) -> Gradients:
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND_ORDER)
        return backward(ctx, *d_outputs)

    return first_order
