"""Int8 and bfloat16 weights, in memory and on disk."""

import warnings
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from regard.config import choose
from regard.model.layers import FactoredTable

# Without 8-bit dot-product instructions, sums of two products may overflow 16 bits unless activations use 7.
SEVEN_BITS = not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


class TransposedLinear(nn.Module):
    """`x Wᵀ + b` with Wᵀ stored as it is read: for few rows a third less time than `nn.Linear`."""

    def __init__(self, weight: Float[Tensor, "D2 D"], bias: Float[Tensor, " D2"] | None):
        super().__init__()
        self.in_features = weight.shape[1]
        self.weight = nn.Parameter(weight.detach().T.contiguous(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        return x @ self.weight if self.bias is None else torch.addmm(self.bias, x, self.weight)


class Int8Linear(nn.Module):
    """`x Wᵀ + b` with W in 8 bits, one scale for each output, and x rounded to 8 bits as it comes (CPU only).

    The matrix takes a quarter of the bytes, which is what a step with few rows waits for.
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
        self.packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach().float())

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D2"]:
        return torch.ops.quantized.linear_dynamic(x, self.packed, SEVEN_BITS)

    def dequantized(self) -> nn.Linear:
        """Gives the map that the 8-bit numbers stand for, which takes x as it is."""
        rounded, bias = torch.ops.quantized.linear_unpack(self.packed)
        linear = nn.Linear(self.in_features, len(rounded), bias is not None, device="meta")
        linear.weight = nn.Parameter(rounded.dequantize(), requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias, requires_grad=False)
        return linear


PACKED = {"float32": TransposedLinear, "int8": Int8Linear}


def quantize_linears(module: nn.Module) -> nn.Module:
    """Puts an 8-bit map in the place of every linear map of a module; one inside a table is part of the table."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child.weight, child.bias))
        elif not isinstance(child, FactoredTable):
            quantize_linears(child)
    return module


def dequantize_linears(module: nn.Module) -> nn.Module:
    """Puts a float map in the place of every 8-bit one."""
    for name, child in module.named_children():
        if isinstance(child, Int8Linear):
            setattr(module, name, child.dequantized())
        else:
            dequantize_linears(child)
    return module


SCALE = ".scale"  # after the name of a matrix: the scales of its rows
LARGEST = 127


def quantize_rows(matrix: Float[Tensor, "R C"]) -> tuple[Int8[Tensor, "R C"], Float[Tensor, " R"]]:
    """Rounds each row to −127 … 127 times a scale of its own, its largest magnitude / 127.

    The error is at most half a scale. Rounding again what comes back gives the same whole numbers: the largest of a row
    is 127 scales once more, up to the last bit, and so every other number is its own multiple again.
    """
    scales = matrix.float().abs().amax(dim=1) / LARGEST
    scales = torch.where(scales > 0, scales, torch.ones_like(scales))  # a row of zeros
    return (matrix.float() / scales[:, None]).round().to(torch.int8), scales


def dequantize_rows(whole: Int8[Tensor, "R C"], scales: Float[Tensor, " R"]) -> Float[Tensor, "R C"]:
    """Gives the numbers that `quantize_rows` stands for."""
    return whole.float() * scales.float()[:, None]


def to_int8(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Rounds a matrix; what has no rows, such as biases and norms, is little and stays as it is."""
    if tensor.dim() != 2 or not tensor.is_floating_point() or tensor.numel() == 0:
        return {name: tensor}
    whole, scales = quantize_rows(tensor)
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


def quantize(tensors: Mapping[str, Tensor], precision: str) -> dict[str, Tensor]:
    """Gives tensors in the named precision; matrices in 8 bits have their scales beside them."""
    make = choose(PRECISION, precision, "precision")
    return {key: part for name, tensor in tensors.items() for key, part in make(name, tensor).items()}


def dequantize(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Gives back float32 for whatever `quantize` made; all else stays as it is."""
    found = {}
    for name, tensor in tensors.items():
        scales = tensors.get(name + SCALE)
        if scales is not None:
            found[name] = dequantize_rows(tensor, scales)
        elif not name.endswith(SCALE) or name.removesuffix(SCALE) not in tensors:
            found[name] = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return found


def precision_of(tensors: Mapping[str, Tensor]) -> str:
    """Names the precision of the largest tensor, which is what most of a model is in."""
    dtype = max(tensors.values(), key=Tensor.numel).dtype
    return str(dtype).removeprefix("torch.")
