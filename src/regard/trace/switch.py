"""Switching a head off: what it puts out becomes zero before the layer projects it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor


@contextmanager
def switched_off(read_by: Sequence[Float[Tensor, "_ E"]]) -> Iterator[None]:
    """Sets to zero, for a while, the columns of the weights that read a head's output, which is as if it were zero.

    The columns are views of a model's parameters, see `Place.read_by`; they are what they were in the end, whatever
    happens in between.
    """
    saved = [columns.detach().clone() for columns in read_by]
    with torch.no_grad():
        for columns in read_by:
            columns.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for columns, before in zip(read_by, saved, strict=True):
                columns.copy_(before)
