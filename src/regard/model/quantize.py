"""Weights in 8 bits for decoding, and in 8 or 16 bits on disk."""

import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from regard.config import choose
from regard.model.layers import FactoredTable
from regard.shapes import Float, Int8

# Without 8-bit dot-product instructions, sums of two products may overflow 16 bits unless activations use 7.
SEVEN_BITS = not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class Int8Linear(nn.Module):
    """`x Wᵀ + b` with W in 8 bits, one scale for each output, and x rounded to 8 bits in every call (CPU only).

    Each row of x has a scale of its own, so that no row depends on the others. A step with few rows waits for the
    weights, which take a quarter of the bytes.
    """

    def __init__(self, weight: Float[Tensor, "D2 D"], bias: Float[Tensor, " D2"] | None):
        super().__init__()
        self.in_features = weight.shape[1]
        self.bias = bias
        weight = weight.detach().float()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        with (
            warnings.catch_warnings()
        ):  # PyTorch means to replace these tensors one day; the versions we admit have them
            warnings.simplefilter("ignore")
            rounded = torch.quantize_per_channel(weight, scales, torch.zeros_like(scales).long(), 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(rounded, None)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        rows = x.reshape(-1, self.in_features)
        largest = rows.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
        # PyTorch takes one scale for all, from the least and the largest number: two more rows make these −1 and 1.
        bounds = rows.new_ones(2, self.in_features)
        bounds[0] = -1.0
        out = torch.ops.quantized.linear_dynamic(torch.cat([rows / largest, bounds]), self.packed, SEVEN_BITS)
        out = out[:-2].mul_(largest) if self.bias is None else torch.addcmul(self.bias, out[:-2], largest)
        return out.view(*x.shape[:-1], -1)

    def dequantized(self) -> nn.Linear:
        """Return the linear layer that the 8-bit weights stand for, which does not round x."""
        rounded, _ = torch.ops.quantized.linear_unpack(self.packed)
        linear = nn.Linear(self.in_features, len(rounded), self.bias is not None, device="meta")
        linear.weight = nn.Parameter(rounded.dequantize(), requires_grad=False)
        if self.bias is not None:
            linear.bias = nn.Parameter(self.bias.detach().float(), requires_grad=False)
        return linear


def quantize_linears(module: nn.Module) -> nn.Module:
    """Replace every linear layer of a module by an 8-bit one, in place; those inside embedding tables stay."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child.weight, child.bias))
        elif not isinstance(child, FactoredTable):
            quantize_linears(child)
    return module


def dequantize_linears(module: nn.Module) -> nn.Module:
    """Replace every 8-bit linear layer of a module by a float one, in place."""
    for name, child in module.named_children():
        if isinstance(child, Int8Linear):
            setattr(module, name, child.dequantized())
        else:
            dequantize_linears(child)
    return module


SCALE = ".scale"  # after the name of a matrix: the scales of its rows
LARGEST = 127


def quantize_rows(matrix: Float[Tensor, "R C"]) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Round each row to −127 … 127 times a scale of its own, its largest magnitude / 127.

    The error is at most half a scale. Rounding the restored numbers again gives the same integers: the largest of a row
    is 127 scales once more, up to the last bit, and so every other number is its own multiple again.
    """
    scales = matrix.float().abs().amax(dim=1) / LARGEST
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))  # a row of zeros
    return (matrix.float() / scales[:, None]).round().to(torch.int8), scales


def to_int8(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Round a matrix; biases and norms are small and stay as they are."""
    if tensor.dim() != 2 or not tensor.is_floating_point() or tensor.numel() == 0:
        return {name: tensor}
    whole, scales = quantize_rows(tensor)
    return {name: whole, name + SCALE: scales}


def to_bfloat16(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Round each number to bfloat16."""
    return {name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor}


def unchanged(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Keep a tensor as it is."""
    return {name: tensor}


PRECISION: dict[str, Callable[[str, Tensor], dict[str, Tensor]]] = {
    "float32": unchanged,
    "bfloat16": to_bfloat16,
    "int8": to_int8,
}


def quantize(tensors: Mapping[str, Tensor], precision: str) -> dict[str, Tensor]:
    """Return tensors in the named precision; 8-bit matrices come with the scales of their rows."""
    make = choose(PRECISION, precision, "precision")
    return {key: part for name, tensor in tensors.items() for key, part in make(name, tensor).items()}
