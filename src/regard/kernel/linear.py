"""Linear maps whose backward passes sum the biases' gradients in a kernel made for tall matrices."""

from collections.abc import Sequence
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
    return Linear.apply(x, weight, bias, None)  # pyright: ignore[reportReturnType]


def joint_linear(x: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Gives `x Wᵀ + b` cut into outputs of these sizes; their gradients are joined without a copy where they can be."""
    return Linear.apply(x, weight, bias, tuple(sizes))  # pyright: ignore[reportReturnType]


class Linear(torch.autograd.Function):
    """Keeps the input and the weight in the type they were multiplied in."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sizes: tuple[int, ...] | None
    ) -> Tensor | tuple[Tensor, ...]:
        kind = computing_type(x)
        x, w = x.to(kind), weight.to(kind)
        ctx.save_for_backward(x, w)
        ctx.kind = weight.dtype
        out = F.linear(x, w, bias.to(kind))
        return out if sizes is None else out.split(sizes, dim=-1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *d_outs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, w = ctx.saved_tensors
        d_out = side_by_side(d_outs)
        flat = d_out.reshape(-1, d_out.shape[-1])
        d_x = d_out @ w if ctx.needs_input_grad[0] else None
        d_weight = product(flat.T, x.reshape(-1, x.shape[-1]), ctx.kind)
        return d_x, d_weight, column_sums(flat).to(ctx.kind), None


def computing_type(x: Tensor) -> torch.dtype:
    """Gives the type in which products with x are made here."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def product(a: Tensor, b: Tensor, kind: torch.dtype) -> Tensor:
    """Gives `a b` in another type, which the product itself writes where it can."""
    if a.dtype.itemsize == 2 and kind == torch.float32 and a.is_cuda:
        return torch.mm(a, b, out_dtype=kind)
    return (a @ b).to(kind)


def side_by_side(parts: tuple[Tensor, ...]) -> Tensor:
    """Sets tensors beside each other along their features; no copy is made of neighbours in memory."""
    first = parts[0]
    if len(parts) == 1:
        return first
    at = first.storage_offset()
    for part in parts:
        together = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (together and part.storage_offset() == at and part.stride() == first.stride() and part.stride(-1) == 1):
            return torch.cat(parts, dim=-1)
        at += part.shape[-1]
    return first.as_strided((*first.shape[:-1], at - first.storage_offset()), first.stride())


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
