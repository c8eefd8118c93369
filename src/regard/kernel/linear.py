"""A linear map whose backward pass sums the bias's gradient in a kernel made for tall matrices."""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLS = 64, 64  # of one tile
N_PARTS = 128  # in which the rows are summed before the parts are


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Gives `x Wᵀ + b`, in autocast's type where that is on; gradients of parameters keep the parameters' type."""
    return Linear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


class Linear(torch.autograd.Function):
    """Keeps the input and the weight in the type they were multiplied in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        x, w = x.to(kind), weight.to(kind)
        ctx.save_for_backward(x, w)
        ctx.kind = weight.dtype
        return F.linear(x, w, bias.to(kind))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, w = ctx.saved_tensors
        flat = d_out.reshape(-1, d_out.shape[-1])
        d_x = d_out @ w if ctx.needs_input_grad[0] else None
        d_weight = flat.T @ x.reshape(-1, x.shape[-1])
        return d_x, d_weight.to(ctx.kind), column_sums(flat).to(ctx.kind)


def column_sums(x: Tensor) -> Tensor:
    """Adds up the rows of a matrix in float32, always in the same order."""
    N, D = x.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    n_parts = min(N_PARTS, triton.cdiv(N, ROWS))
    parts = torch.empty(n_parts, D, dtype=torch.float32, device=x.device)
    _sums[(triton.cdiv(D, COLS), n_parts)](x, parts, N, D, x.stride(0), n_parts, ROWS=ROWS, COLS=COLS, num_warps=4)
    return parts.sum(dim=0)


@triton.jit
def _sums(x_at, parts_at, N, D, stride, n_parts, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(part * ROWS, N, n_parts * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (cols < D)[None, :]
        total += tl.load(x_at + rows.to(tl.int64)[:, None] * stride + cols[None, :], inside, 0.0).to(tl.float32)
    tl.store(parts_at + part * D + cols, tl.sum(total, 0), cols < D)
