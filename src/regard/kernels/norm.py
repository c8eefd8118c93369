"""Residual + dropout + layer norm."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import uniform

N_PROGRAMS = 1024  # that share the rows in the backward pass, each with its own sums for weight and bias


def add_norm(x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor, eps: float, rate: float) -> Tensor:
    """Gives what the plain form gives, in autocast's type if that is on, with dropout drawn by PyTorch's generator.

    Without an update it is the norm alone.
    """
    return AddNorm.apply(x, update, weight, bias, eps, rate)  # pyright: ignore[reportReturnType]


class AddNorm(torch.autograd.Function):
    """Keeps the sum, two numbers a row and a seed; the dropped features are found again from the seed."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor, eps: float, rate: float
    ) -> Tensor:
        x, update = x.contiguous(), None if update is None else update.contiguous()
        D = x.shape[-1]
        n_rows = x.numel() // D
        kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
        out = torch.empty_like(x, dtype=kind)
        total = x if update is None else torch.empty_like(update)
        stats = torch.empty(2, n_rows, dtype=torch.float32, device=x.device)
        seed = torch.randint(2**31 - 1, (1,), device=x.device, dtype=torch.int32)
        _forward[(n_rows,)](
            *(x, update, weight, bias, out, total, stats, seed, n_rows, D, eps, rate),
            BLOCK=triton.next_power_of_2(D),
            ADDS=update is not None,
            DROPS=rate > 0.0,
            num_warps=_warps(D),
        )
        ctx.save_for_backward(total, weight, stats, seed)
        ctx.rate, ctx.x_type, ctx.adds = rate, x.dtype, update is not None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        total, weight, stats, seed = ctx.saved_tensors
        D = total.shape[-1]
        n_rows = total.numel() // D
        d_x = torch.empty_like(total, dtype=ctx.x_type)
        d_update = torch.empty_like(total) if ctx.adds else None
        n_programs = min(N_PROGRAMS, n_rows)
        sums = torch.empty(2, n_programs, D, dtype=torch.float32, device=total.device)
        _backward[(n_programs,)](
            *(d_out.contiguous(), total, weight, stats, seed, d_x, d_update, sums, n_rows, D, ctx.rate, n_programs),
            BLOCK=triton.next_power_of_2(D),
            ADDS=ctx.adds,
            DROPS=ctx.rate > 0.0,
            num_warps=_warps(D),
        )
        d_weight, d_bias = sums.sum(dim=1).to(weight.dtype)
        return d_x, d_update, d_weight, d_bias, None, None


def _warps(D: int) -> int:
    return min(8, max(1, triton.next_power_of_2(D) // 256))


@triton.jit
def _forward(
    x_at, update_at, weight_at, bias_at, out_at, total_at, stats_at, seed_at, n_rows, D, eps, rate,
    BLOCK: tl.constexpr, ADDS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    at = row * D + cols
    total = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    if ADDS:
        update = tl.load(update_at + at, inside, 0.0).to(tl.float32)
        if DROPS:
            kept = uniform(tl.load(seed_at), at) >= rate
            update = tl.where(kept, update / (1 - rate), 0.0)
        total += update
        tl.store(total_at + at, total.to(total_at.dtype.element_ty), inside)
    mean = tl.sum(total, 0) / D
    centred = tl.where(inside, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / D + eps)
    weight = tl.load(weight_at + cols, inside, 0.0).to(tl.float32)
    bias = tl.load(bias_at + cols, inside, 0.0).to(tl.float32)
    tl.store(out_at + at, (centred * scale * weight + bias).to(out_at.dtype.element_ty), inside)
    tl.store(stats_at + row, mean)
    tl.store(stats_at + n_rows + row, scale)


@triton.jit
def _backward(
    d_out_at, total_at, weight_at, stats_at, seed_at, d_x_at, d_update_at, sums_at, n_rows, D, rate, n_programs,
    BLOCK: tl.constexpr, ADDS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    weight = tl.load(weight_at + cols, inside, 0.0).to(tl.float32)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for row in range(program, n_rows, n_programs):
        at = row * D + cols
        d_out = tl.load(d_out_at + at, inside, 0.0).to(tl.float32)
        total = tl.load(total_at + at, inside, 0.0).to(tl.float32)
        mean = tl.load(stats_at + row)
        scale = tl.load(stats_at + n_rows + row)
        normed = tl.where(inside, (total - mean) * scale, 0.0)
        d_weight += d_out * normed
        d_bias += d_out
        d_normed = d_out * weight
        along = tl.sum(d_normed * normed, 0) / D
        level = tl.sum(d_normed, 0) / D
        d_total = (d_normed - normed * along - level) * scale
        tl.store(d_x_at + at, d_total.to(d_x_at.dtype.element_ty), inside)
        if ADDS:
            if DROPS:
                kept = uniform(tl.load(seed_at), at) >= rate
                d_total = tl.where(kept, d_total / (1 - rate), 0.0)
            tl.store(d_update_at + at, d_total.to(d_update_at.dtype.element_ty), inside)
    tl.store(sums_at + program * D + cols, d_weight, inside)
    tl.store(sums_at + (n_programs + program) * D + cols, d_bias, inside)


def join_norm(
    x: Tensor, update: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """Gives `x + update` (R, D), or x itself, and its norm: over features with a bias, else the root mean square's."""
    R, D = x.shape
    total, normed = x if update is None else torch.empty_like(x), torch.empty_like(x)
    _join_norm[(R,)](
        *(x, update, weight, bias, total, normed, D, eps),
        BLOCK=triton.next_power_of_2(D),
        ADDS=update is not None,
        CENTRES=bias is not None,
        num_warps=min(8, max(1, triton.next_power_of_2(D) // 256)),
    )
    return total, normed


@triton.jit
def _join_norm(
    x_at, update_at, weight_at, bias_at, total_at, normed_at, D, eps,
    BLOCK: tl.constexpr, ADDS: tl.constexpr, CENTRES: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    at = tl.program_id(0).to(tl.int64) * D + columns
    total = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    if ADDS:
        total += tl.load(update_at + at, inside, 0.0).to(tl.float32)
        tl.store(total_at + at, total.to(total_at.dtype.element_ty), inside)
    if CENTRES:
        total = tl.where(inside, total - tl.sum(total, 0) / D, 0.0)
    normed = total * tl.rsqrt(tl.sum(total * total, 0) / D + eps)
    normed *= tl.load(weight_at + columns, inside, 0.0).to(tl.float32)
    if CENTRES:
        normed += tl.load(bias_at + columns, inside, 0.0).to(tl.float32)
    tl.store(normed_at + at, normed.to(normed_at.dtype.element_ty), inside)


BLOCK = 2048


def add_dropout(x: Tensor, update: Tensor, rate: float) -> Tensor:
    """Gives what the plain form gives, in the type of x, with dropout drawn anew by PyTorch's generator."""
    return AddDropout.apply(x, update, rate)  # pyright: ignore[reportReturnType]


class AddDropout(torch.autograd.Function):
    """Keeps a seed alone, from which the dropped features are found again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, update: Tensor, rate: float) -> Tensor:
        x, update = x.contiguous(), update.contiguous()
        out = torch.empty_like(x)
        seed = torch.randint(2**31 - 1, (1,), device=x.device, dtype=torch.int32)
        n = x.numel()
        _dropout_forward[(triton.cdiv(n, BLOCK),)](x, update, out, seed, n, rate, BLOCK=BLOCK)
        ctx.save_for_backward(seed)
        ctx.rate, ctx.update_type = rate, update.dtype
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (seed,) = ctx.saved_tensors
        d_out = d_out.contiguous()
        d_update = torch.empty_like(d_out, dtype=ctx.update_type)
        n = d_out.numel()
        _dropout_backward[(triton.cdiv(n, BLOCK),)](d_out, d_update, seed, n, ctx.rate, BLOCK=BLOCK)
        return d_out, d_update, None


@triton.jit
def _dropout_forward(x_at, update_at, out_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    update = tl.load(update_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(out_at + at, (x + tl.where(kept, update / (1 - rate), 0.0)).to(out_at.dtype.element_ty), inside)


@triton.jit
def _dropout_backward(d_out_at, d_update_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d_out = tl.load(d_out_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(d_update_at + at, tl.where(kept, d_out / (1 - rate), 0.0).to(d_update_at.dtype.element_ty), inside)
