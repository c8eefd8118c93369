"""Linear maps laid out for reading: transposed in float32, or in 8-bit whole numbers."""

import warnings

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.model.factored import FactoredTable

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

    def restored(self) -> nn.Linear:
        """Gives the map that the 8-bit numbers stand for, which takes x as it is."""
        rounded, bias = torch.ops.quantized.linear_unpack(self.packed)
        linear = nn.Linear(self.in_features, len(rounded), bias is not None, device="meta")
        linear.weight = nn.Parameter(rounded.dequantize(), requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias, requires_grad=False)
        return linear


PACKED = {"float32": TransposedLinear, "int8": Int8Linear}


def replace_linears(module: nn.Module) -> nn.Module:
    """Puts an 8-bit map in the place of every linear map of a module; one inside a table is part of the table."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, Int8Linear(child.weight, child.bias))
        elif not isinstance(child, FactoredTable):
            replace_linears(child)
    return module


def restore_linears(module: nn.Module) -> nn.Module:
    """Puts a float map in the place of every 8-bit one."""
    for name, child in module.named_children():
        if isinstance(child, Int8Linear):
            setattr(module, name, child.restored())
        else:
            restore_linears(child)
    return module
