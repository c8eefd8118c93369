"""Linear maps with parameters' gradients in one pass, products of few rows, and the feed-forward network."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import compute_dtype, draw_seed, uniform

ROWS, COLS = 64, 64  # of one tile
N_PARTS = 128  # in which the rows are summed before the parts are


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return `x Wᵀ + b`, in autocast's type where that is on; gradients of parameters keep the parameters' type."""
    return _Linear.apply(x, weight, bias, None)  # pyright: ignore[reportReturnType]


def joint_linear(x: Tensor, weight: Tensor, bias: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Return `x Wᵀ + b` split into outputs of these sizes; their gradients are joined without a copy if adjacent."""
    return _Linear.apply(x, weight, bias, tuple(sizes))  # pyright: ignore[reportReturnType]


class _Linear(torch.autograd.Function):
    """Saves the input and the weight in the type they were multiplied in."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, sizes: tuple[int, ...] | None
    ) -> Tensor | tuple[Tensor, ...]:
        dtype = compute_dtype(x)
        x, w = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(x, w)
        ctx.dtype = weight.dtype
        out = F.linear(x, w, bias.to(dtype))
        return out if sizes is None else out.split(sizes, dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_outs: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, w = ctx.saved_tensors
        d_out = _concat_features(d_outs)
        flat = d_out.reshape(-1, d_out.shape[-1])
        d_x = d_out @ w if ctx.needs_input_grad[0] else None
        d_weight = _matmul(flat.T, x.reshape(-1, x.shape[-1]), ctx.dtype)
        return d_x, d_weight, column_sums(flat).to(ctx.dtype), None


def _matmul(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `a b` in another type, which the product itself writes where it can."""
    if a.dtype.itemsize == 2 and dtype == torch.float32 and a.is_cuda:
        return torch.mm(a, b, out_dtype=dtype)
    return (a @ b).to(dtype)


def _concat_features(parts: tuple[Tensor, ...]) -> Tensor:
    """Return tensors joined along their features; no copy is made of neighbours in memory."""
    first = parts[0]
    if len(parts) == 1:
        return first
    end = first.storage_offset()
    for part in parts:
        together = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not (together and part.storage_offset() == end and part.stride() == first.stride() and part.stride(-1) == 1):
            return torch.cat(parts, dim=-1)
        end += part.shape[-1]
    return first.as_strided((*first.shape[:-1], end - first.storage_offset()), first.stride())


def column_sums(x: Tensor) -> Tensor:
    """Return the sum of a matrix's rows in float32, always added in the same order."""
    N, D = x.shape
    if x.stride(1) != 1:
        x = x.contiguous()
    n_parts = min(N_PARTS, triton.cdiv(N, ROWS))
    parts = torch.empty(n_parts, D, dtype=torch.float32, device=x.device)
    _column_sums_kernel[(triton.cdiv(D, COLS), n_parts)](
        x, parts, N, D, x.stride(0), n_parts, ROWS=ROWS, COLS=COLS, num_warps=4
    )
    return parts.sum(dim=0)


@triton.jit
def _column_sums_kernel(x_ptr, parts_ptr, N, D, stride, n_parts, ROWS: tl.constexpr, COLS: tl.constexpr):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(part * ROWS, N, n_parts * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (cols < D)[None, :]
        total += tl.load(x_ptr + rows.to(tl.int64)[:, None] * stride + cols[None, :], inside, 0.0).to(tl.float32)
    tl.store(parts_ptr + part * D + cols, tl.sum(total, 0), cols < D)


WIDEST = 4096  # features of a row that one program takes at once


def skinny_gemm(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Return `x Wᵀ + b`, or its ReLU, for few rows: x is (R, D), weight (D2, D), and R is a constant of the kernel."""
    (R, D), D2 = x.shape, len(weight)
    outputs = 4 if D2 <= WIDEST else 16
    out = x.new_empty(R, D2)
    _skinny_gemm_kernel[(triton.cdiv(D2, outputs),)](
        *(x, weight, bias, out, D, D2),
        R=R,
        OUTPUTS=outputs,
        BLOCK=triton.next_power_of_2(D),
        RELU=relu,
        num_warps=4,
    )
    return out


def skinny_gemm_fits(x: Tensor) -> bool:
    """Return whether one program can hold a whole row."""
    return x.shape[1] <= WIDEST and x.dtype != torch.float64


@triton.jit
def _skinny_gemm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, D, D2,
    R: tl.constexpr, OUTPUTS: tl.constexpr, BLOCK: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    outputs = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    features = tl.arange(0, BLOCK)
    there, inside = outputs < D2, features < D
    at = outputs.to(tl.int64)[:, None] * D + features[None, :]
    weight = tl.load(weight_ptr + at, there[:, None] & inside[None, :], 0.0).to(tl.float32)
    bias = (
        tl.load(bias_ptr + outputs, there, 0.0).to(tl.float32)
        if bias_ptr is not None
        else tl.zeros([OUTPUTS], tl.float32)
    )
    for row in tl.static_range(R):
        x = tl.load(x_ptr + row * D + features, inside, 0.0).to(tl.float32)
        y = tl.sum(weight * x[None, :], 1) + bias
        y = tl.maximum(y, 0.0) if RELU else y
        tl.store(out_ptr + row * D2 + outputs, y.to(out_ptr.dtype.element_ty), there)


BLOCK = 2048
FF_ROWS, FF_COLS = 32, 128  # of one tile of the feed-forward


def feed_forward(x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, rate: float) -> Tensor:
    """Return `W_2 dropout(relu(W_1 x + b_1)) + b_2`; dropout follows PyTorch's generator."""
    return _FeedForward.apply(x, w_1, b_1, w_2, b_2, rate)  # pyright: ignore[reportReturnType]


class _FeedForward(torch.autograd.Function):
    """Saves the input and the hidden layer, which is above zero just where a feature has a gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w_1: Tensor, b_1: Tensor, w_2: Tensor, b_2: Tensor, rate: float) -> Tensor:
        dtype = compute_dtype(x)
        ctx.dtype, ctx.rate = w_1.dtype, rate
        x, w_1, b_1, w_2, b_2 = (each.to(dtype) for each in (x, w_1, b_1, w_2, b_2))
        hidden = _relu_dropout_(F.linear(x, w_1, b_1), rate)
        ctx.save_for_backward(x, hidden, w_1, w_2)
        return F.linear(hidden, w_2, b_2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        x, hidden, w_1, w_2 = ctx.saved_tensors
        flat_x, flat, d_flat = (each.reshape(-1, each.shape[-1]) for each in (x, hidden, d_out))
        d_w_2 = _matmul(d_flat.T, flat, ctx.dtype)
        d_hidden, d_b_1 = _relu_dropout_backward_(d_flat @ w_2, flat, ctx.rate)
        d_x = (d_hidden @ w_1).view_as(x) if ctx.needs_input_grad[0] else None
        d_w_1 = _matmul(d_hidden.T, flat_x, ctx.dtype)
        return d_x, d_w_1, d_b_1.to(ctx.dtype), d_w_2, column_sums(d_flat).to(ctx.dtype), None


def _relu_dropout_(x: Tensor, rate: float) -> Tensor:
    """Apply `dropout(relu(x))` in place."""
    seed = draw_seed(x.device)
    _relu_dropout_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, seed, x.numel(), rate, BLOCK=BLOCK)
    return x


def _relu_dropout_backward_(d_out: Tensor, out: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Turn the gradient of `out = dropout(relu(x))` into that of x, in place; return it and its sum over rows."""
    N, F = out.shape
    n_parts = min(N_PARTS, triton.cdiv(N, FF_ROWS))
    parts = torch.empty(n_parts, F, dtype=torch.float32, device=out.device)
    grid = triton.cdiv(F, FF_COLS), n_parts
    _relu_dropout_backward_kernel[grid](d_out, out, parts, N, F, rate, n_parts, ROWS=FF_ROWS, COLS=FF_COLS, num_warps=4)
    return d_out, parts.sum(dim=0)


@triton.jit
def _relu_dropout_kernel(x_ptr, seed_ptr, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_ptr), at) >= rate
    tl.store(x_ptr + at, tl.where(kept & (x > 0), x / (1 - rate), 0.0).to(x_ptr.dtype.element_ty), inside)


@triton.jit
def _relu_dropout_backward_kernel(
    d_out_ptr, out_ptr, parts_ptr, N, F, rate, n_parts, ROWS: tl.constexpr, COLS: tl.constexpr
):
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    part = tl.program_id(1)
    total = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(part * ROWS, N, n_parts * ROWS):
        rows = first + tl.arange(0, ROWS)
        inside = (rows < N)[:, None] & (cols < F)[None, :]
        at = rows.to(tl.int64)[:, None] * F + cols[None, :]
        d_out = tl.load(d_out_ptr + at, inside, 0.0).to(tl.float32)
        out = tl.load(out_ptr + at, inside, 0.0).to(tl.float32)
        d_x = tl.where(out > 0, d_out / (1 - rate), 0.0)
        tl.store(d_out_ptr + at, d_x.to(d_out_ptr.dtype.element_ty), inside)
        total += d_x
    tl.store(parts_ptr + part * F + cols, tl.sum(total, 0), cols < F)
