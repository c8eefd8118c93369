"""A copy of a model to look into, so that nothing happens to the model that runs."""

from collections import OrderedDict
from copy import copy
from typing import TypeVar

from torch import nn

M = TypeVar("M", bound=nn.Module)


def private_copy(module: M) -> M:
    """Copies a module and all inside it, at rest and without hooks; parameters and buffers stay the same tensors.

    A module that stands in several places becomes several, so that each place can be told apart.
    """
    copied = copy(module)
    copied._modules = {name: None if child is None else private_copy(child) for name, child in module._modules.items()}
    for hooks in (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks_with_kwargs",
    ):
        setattr(copied, hooks, OrderedDict())
    copied.training = False
    return copied
