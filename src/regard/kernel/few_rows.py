"""`x Wᵀ + b` for a few rows: the weights are read once, by as many programs as the GPU can hold."""

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDEST = 4096  # features of a row that one program takes at once


def few_rows(x: Tensor, weight: Tensor, bias: Tensor | None, rectified: bool) -> Tensor:
    """Gives the product, or its ReLU; x is (R, D), weight (D2, D)."""
    (R, D), D2 = x.shape, len(weight)
    outputs = 4 if D2 <= WIDEST else 16
    out = x.new_empty(R, D2)
    _few_rows[(triton.cdiv(D2, outputs),)](
        *(x, weight, bias, out, D, D2),
        R=R,
        OUTPUTS=outputs,
        BLOCK=triton.next_power_of_2(D),
        ADDS=bias is not None,
        RECTIFIES=rectified,
        num_warps=4,
    )
    return out


def fits(x: Tensor) -> bool:
    """Tells whether one program can have a whole row."""
    return x.shape[1] <= WIDEST and x.dtype != torch.float64


@triton.jit
def _few_rows(
    x_at, weight_at, bias_at, out_at, D, D2,
    R: tl.constexpr, OUTPUTS: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr, RECTIFIES: tl.constexpr,
):  # fmt: skip
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    features = tl.arange(0, BLOCK)
    there, inside = outputs < D2, features < D
    at = outputs.to(tl.int64)[:, None] * D + features[None, :]
    weight = tl.load(weight_at + at, there[:, None] & inside[None, :], 0.0).to(tl.float32)
    bias = tl.load(bias_at + outputs, there, 0.0).to(tl.float32) if ADDS else tl.zeros([OUTPUTS], tl.float32)
    for row in tl.static_range(R):
        x = tl.load(x_at + row * D + features, inside, 0.0).to(tl.float32)
        y = tl.sum(weight * x[None, :], 1) + bias
        y = tl.maximum(y, 0.0) if RECTIFIES else y
        tl.store(out_at + row * D2 + outputs, y.to(out_at.dtype.element_ty), there)
