"""Residual sum, dropout and norm in one pass over memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import compute_dtype, draw_seed, drop_out

N_PROGRAMS = 1024  # that share the rows in the backward pass, each with its own sums for weight and bias


def add_norm(x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor, eps: float, rate: float) -> Tensor:
    """Return `layer_norm(x + dropout(update))`, in autocast's type if that is on; without an update, the norm alone.

    Dropout follows PyTorch's generator.
    """
    return _AddNorm.apply(x, update, weight, bias, eps, rate)  # pyright: ignore[reportReturnType]


class _AddNorm(torch.autograd.Function):
    """Saves the sum, two numbers a row and a seed, from which the dropped features are found again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor, eps: float, rate: float
    ) -> Tensor:
        x, update = x.contiguous(), None if update is None else update.contiguous()
        D = x.shape[-1]
        n_rows = x.numel() // D
        out = torch.empty_like(x, dtype=compute_dtype(x))
        total = x if update is None else torch.empty_like(update)
        stats = torch.empty(2, n_rows, dtype=torch.float32, device=x.device)
        seed = draw_seed(x.device)
        _add_norm_kernel[(n_rows,)](
            *(x, update, weight, bias, out, total, stats, seed, n_rows, D, eps, rate),
            BLOCK=triton.next_power_of_2(D),
            DROPS=rate > 0.0,
            num_warps=_warps(D),
        )
        ctx.save_for_backward(total, weight, stats, seed)
        ctx.rate, ctx.x_dtype, ctx.adds = rate, x.dtype, update is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        total, weight, stats, seed = ctx.saved_tensors
        D = total.shape[-1]
        n_rows = total.numel() // D
        d_x = torch.empty_like(total, dtype=ctx.x_dtype)
        d_update = torch.empty_like(total) if ctx.adds else None
        n_programs = min(N_PROGRAMS, n_rows)
        sums = torch.empty(2, n_programs, D, dtype=torch.float32, device=total.device)
        _add_norm_backward_kernel[(n_programs,)](
            *(d_out.contiguous(), total, weight, stats, seed, d_x, d_update, sums, n_rows, D, ctx.rate, n_programs),
            BLOCK=triton.next_power_of_2(D),
            DROPS=ctx.rate > 0.0,
            num_warps=_warps(D),
        )
        d_weight, d_bias = sums.sum(dim=1).to(weight.dtype)
        return d_x, d_update, d_weight, d_bias, None, None


def _warps(D: int) -> int:
    return min(8, max(1, triton.next_power_of_2(D) // 256))


@triton.jit
def _add_norm_kernel(
    x_ptr, update_ptr, weight_ptr, bias_ptr, out_ptr, total_ptr, stats_ptr, seed_ptr, n_rows, D, eps, rate,
    BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    at = row * D + cols
    total = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    if update_ptr is not None:
        update = tl.load(update_ptr + at, inside, 0.0).to(tl.float32)
        if DROPS:
            update = drop_out(update, seed_ptr, at, rate)
        total += update
        tl.store(total_ptr + at, total.to(total_ptr.dtype.element_ty), inside)
    mean = tl.sum(total, 0) / D
    centred = tl.where(inside, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / D + eps)
    weight = tl.load(weight_ptr + cols, inside, 0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, inside, 0.0).to(tl.float32)
    tl.store(out_ptr + at, (centred * scale * weight + bias).to(out_ptr.dtype.element_ty), inside)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, scale)


@triton.jit
def _add_norm_backward_kernel(
    d_out_ptr, total_ptr, weight_ptr, stats_ptr, seed_ptr, d_x_ptr, d_update_ptr, sums_ptr, n_rows, D, rate, n_programs,
    BLOCK: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    weight = tl.load(weight_ptr + cols, inside, 0.0).to(tl.float32)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    program = tl.program_id(0)
    for row in range(program, n_rows, n_programs):
        at = row * D + cols
        d_out = tl.load(d_out_ptr + at, inside, 0.0).to(tl.float32)
        total = tl.load(total_ptr + at, inside, 0.0).to(tl.float32)
        mean = tl.load(stats_ptr + row)
        scale = tl.load(stats_ptr + n_rows + row)
        normed = tl.where(inside, (total - mean) * scale, 0.0)
        d_weight += d_out * normed
        d_bias += d_out
        d_normed = d_out * weight
        along = tl.sum(d_normed * normed, 0) / D
        level = tl.sum(d_normed, 0) / D
        d_total = (d_normed - normed * along - level) * scale
        tl.store(d_x_ptr + at, d_total.to(d_x_ptr.dtype.element_ty), inside)
        if d_update_ptr is not None:
            if DROPS:
                d_total = drop_out(d_total, seed_ptr, at, rate)
            tl.store(d_update_ptr + at, d_total.to(d_update_ptr.dtype.element_ty), inside)
    tl.store(sums_ptr + program * D + cols, d_weight, inside)
    tl.store(sums_ptr + (n_programs + program) * D + cols, d_bias, inside)


def add_norm_decode(
    x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Return `x + update` (R, D), or x itself, and its norm: a layer norm with a bias, an RMS norm without."""
    R, D = x.shape
    total, normed = x if update is None else torch.empty_like(x), torch.empty_like(x)
    _add_norm_decode_kernel[(R,)](
        *(x, update, weight, bias, total, normed, D, eps),
        BLOCK=triton.next_power_of_2(D),
        num_warps=_warps(D),
    )
    return total, normed


@triton.jit
def _add_norm_decode_kernel(
    x_ptr, update_ptr, weight_ptr, bias_ptr, total_ptr, normed_ptr, D, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    at = tl.program_id(0).to(tl.int64) * D + columns
    total = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    if update_ptr is not None:
        total += tl.load(update_ptr + at, inside, 0.0).to(tl.float32)
        tl.store(total_ptr + at, total.to(total_ptr.dtype.element_ty), inside)
    if bias_ptr is not None:
        total = tl.where(inside, total - tl.sum(total, 0) / D, 0.0)
    normed = total * tl.rsqrt(tl.sum(total * total, 0) / D + eps)
    normed *= tl.load(weight_ptr + columns, inside, 0.0).to(tl.float32)
    if bias_ptr is not None:
        normed += tl.load(bias_ptr + columns, inside, 0.0).to(tl.float32)
    tl.store(normed_ptr + at, normed.to(normed_ptr.dtype.element_ty), inside)


BLOCK = 2048


def add_dropout(x: Tensor, update: Tensor, rate: float) -> Tensor:
    """Return `x + dropout(update)` in the type of x; dropout follows PyTorch's generator."""
    return _AddDropout.apply(x, update, rate)  # pyright: ignore[reportReturnType]


class _AddDropout(torch.autograd.Function):
    """Saves a seed alone, from which the dropped features are found again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, update: Tensor, rate: float) -> Tensor:
        x, update = x.contiguous(), update.contiguous()
        out = torch.empty_like(x)
        seed = draw_seed(x.device)
        n = x.numel()
        _add_dropout_kernel[(triton.cdiv(n, BLOCK),)](x, update, out, seed, n, rate, BLOCK=BLOCK)
        ctx.save_for_backward(seed)
        ctx.rate, ctx.update_dtype = rate, update.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (seed,) = ctx.saved_tensors
        d_out = d_out.contiguous()
        d_update = torch.empty_like(d_out, dtype=ctx.update_dtype)
        n = d_out.numel()
        _add_dropout_backward_kernel[(triton.cdiv(n, BLOCK),)](d_out, d_update, seed, n, ctx.rate, BLOCK=BLOCK)
        return d_out, d_update, None


@triton.jit
def _add_dropout_kernel(x_ptr, update_ptr, out_ptr, seed_ptr, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    update = tl.load(update_ptr + at, inside, 0.0).to(tl.float32)
    tl.store(out_ptr + at, (x + drop_out(update, seed_ptr, at, rate)).to(out_ptr.dtype.element_ty), inside)


@triton.jit
def _add_dropout_backward_kernel(d_out_ptr, d_update_ptr, seed_ptr, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d_out = tl.load(d_out_ptr + at, inside, 0.0).to(tl.float32)
    tl.store(d_update_ptr + at, drop_out(d_out, seed_ptr, at, rate).to(d_update_ptr.dtype.element_ty), inside)
