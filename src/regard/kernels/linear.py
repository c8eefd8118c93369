"""Linear, joint linear, skinny GEMM, feed-forward."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import uniform

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


BLOCK = 2048
FF_ROWS, FF_COLS = 32, 128  # of one tile of the feed-forward


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, rate: float) -> Tensor:
    """Gives `W_2 dropout(relu(W_1 x + b_1)) + b_2`, with dropout drawn by PyTorch's generator."""
    return FeedForward.apply(x, w_1, b_1, w_2, b_2, rate)  # pyright: ignore[reportReturnType]


class FeedForward(torch.autograd.Function):
    """Keeps the input and what is inside: a feature learns just where that is above zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, rate: float) -> Tensor:
        kind = computing_type(x)
        ctx.kind, ctx.rate = w_1.dtype, rate
        x, w_1, b_1, w_2, b_2 = (each.to(kind) for each in (x, w_1, b_1, w_2, b_2))
        inside = relu_dropout_(F.linear(x, w_1, b_1), rate)
        ctx.save_for_backward(x, inside, w_1, w_2)
        return F.linear(inside, w_2, b_2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, inside, w_1, w_2 = ctx.saved_tensors
        flat_x, flat, d_flat = (each.reshape(-1, each.shape[-1]) for each in (x, inside, d_out))
        d_w_2 = product(d_flat.T, flat, ctx.kind)
        d_inside, d_b_1 = through(d_flat @ w_2, flat, ctx.rate)
        d_x = (d_inside @ w_1).view_as(x) if ctx.needs_input_grad[0] else None
        d_w_1 = product(d_inside.T, flat_x, ctx.kind)
        return d_x, d_w_1, d_b_1.to(ctx.kind), d_w_2, column_sums(d_flat).to(ctx.kind), None


def relu_dropout_(x: Tensor, rate: float) -> Tensor:
    """Applies `dropout(relu(x))` in place."""
    seed = torch.randint(2**31 - 1, (1,), device=x.device, dtype=torch.int32)
    _relu_dropout[(triton.cdiv(x.numel(), BLOCK),)](x, seed, x.numel(), rate, BLOCK=BLOCK)
    return x


def through(d_out: Tensor, out: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Turns the gradient of `out = dropout(relu(x))` into that of x, in place; gives its sum over rows besides."""
    N, F = out.shape
    n_parts = min(N_PARTS, triton.cdiv(N, FF_ROWS))
    parts = torch.empty(n_parts, F, dtype=torch.float32, device=out.device)
    grid = triton.cdiv(F, FF_COLS), n_parts
    _through[grid](d_out, out, parts, N, F, rate, n_parts, ROWS=FF_ROWS, COLS=FF_COLS, num_warps=4)
    return d_out, parts.sum(dim=0)


@triton.jit
def _relu_dropout(x_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(x_at + at, tl.where(kept & (x > 0), x / (1 - rate), 0.0).to(x_at.dtype.element_ty), inside)


@triton.jit
def _through(d_out_at, out_at, parts_at, N, F, rate, n_parts, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(part * ROWS, N, n_parts * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (cols < F)[None, :]
        at = rows.to(tl.int64)[:, None] * F + cols[None, :]
        d_out = tl.load(d_out_at + at, inside, 0.0).to(tl.float32)
        out = tl.load(out_at + at, inside, 0.0).to(tl.float32)
        d_x = tl.where(out > 0, d_out / (1 - rate), 0.0)
        tl.store(d_out_at + at, d_x.to(d_out_at.dtype.element_ty), inside)
        total += d_x
    tl.store(parts_at + part * F + cols, tl.sum(total, 0), cols < F)
