"""Weights in fewer bytes: matrices in 8-bit whole numbers with one scale for each row, or in bfloat16."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int8
from torch import Tensor

from regard.config import choose

SCALE = ".scale"  # after the name of a matrix: the scales of its rows
LARGEST = 127


def rounded_rows(matrix: Float[Tensor, "R C"]) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Rounds each row to −127 … 127 times a scale of its own, its largest magnitude / 127.

    The error is at most half a scale. Rounding again what comes back gives the same whole numbers: the largest of a row
    is 127 scales once more, up to the last bit, and so every other number is its own multiple again.
    """
    scales = matrix.float().abs().amax(dim=1) / LARGEST
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))  # a row of zeros
    return (matrix.float() / scales[:, None]).round().to(torch.int8), scales


def restored_rows(whole: Int8[Tensor, "R C"], scales: Float[Tensor, " R"]) -> Float[Tensor, "R C"]:
    """Gives the numbers that `rounded_rows` stands for."""
    return whole.float() * scales.float()[:, None]


def to_int8(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Rounds a matrix; what has no rows, such as biases and norms, is little and stays as it is."""
    if tensor.dim() != 2 or not tensor.is_floating_point() or tensor.numel() == 0:
        return {name: tensor}
    whole, scales = rounded_rows(tensor)
    return {name: whole, name + SCALE: scales}


def to_bfloat16(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Drops the last 16 bits of each number, rounding to even."""
    return {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor}


def as_it_is(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Keeps a tensor."""
    return {name: tensor}


PRECISION: dict[str, Callable[[str, Tensor], dict[str, Tensor]]] = {
    "float32": as_it_is,
    "bfloat16": to_bfloat16,
    "int8": to_int8,
}


def made_small(tensors: Mapping[str, Tensor], precision: str) -> dict[str, Tensor]:
    """Gives tensors in the named precision; matrices in 8 bits have their scales beside them."""
    make = choose(PRECISION, precision, "precision")
    return {key: part for name, tensor in tensors.items() for key, part in make(name, tensor).items()}


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gives back float32 for whatever `made_small` made; all else stays as it is."""
    found = {}
    for name, tensor in tensors.items():
        scales = tensors.get(name + SCALE)
        if scales is not None:
            found[name] = restored_rows(tensor, scales)
        elif not name.endswith(SCALE) or name.removesuffix(SCALE) not in tensors:
            found[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return found


def precision_of(tensors: Mapping[str, Tensor]) -> str:
    """Names the precision of the largest tensor, which is what most of a model is in."""
    dtype = max(tensors.values(), key=Tensor.numel).dtype
    return str(dtype).removeprefix("torch.")
