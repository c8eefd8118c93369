"""Linear maps, one by one or several of the same input in one product."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.shard import is_shard


class Linear(nn.Linear):
    """`x Wᵀ + b` with PyTorch's parameters; on a GPU with a quicker backward pass."""

    def forward(self, input: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        return _product(input, self.weight, self.bias)


def joint(x: Float[Tensor, "*B D"], maps: Sequence[Any]) -> tuple[Tensor, ...]:
    """Applies several maps to one input; on a GPU, where every call costs, as one map whose outputs are cut apart."""
    biases = [each.bias for each in maps if each.bias is not None]
    if not x.is_cuda or is_shard(maps[0].weight) or len(biases) not in {0, len(maps)}:
        return tuple(each(x) for each in maps)
    weight, sizes = torch.cat([each.weight for each in maps]), [each.out_features for each in maps]
    if not (biases and is_learning(x)):
        return F.linear(x, weight, torch.cat(biases) if biases else None).split(sizes, dim=-1)
    from regard.kernel.linear import joint_linear  # only there is Triton installed

    return joint_linear(x, weight, torch.cat(biases), sizes)


def is_learning(x: Tensor) -> bool:
    """Tells whether our own kernels take this call: on a GPU, where there will be a backward pass."""
    return x.is_cuda and x.dtype.itemsize <= 4 and torch.is_grad_enabled()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if bias is None or not is_learning(x) or is_shard(weight):
        return F.linear(x, weight, bias)
    from regard.kernel.linear import linear  # only there is Triton installed

    return linear(x, weight, bias)
