"""The feed-forward network with `dropout(relu(x))` inside, whose backward pass reads what is inside once."""

from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.chance import uniform
from regard.kernel.linear import column_sums, computing_type, product

BLOCK = 2048
ROWS, COLS = 32, 128  # of one tile
N_PARTS = 128  # in which the rows are summed before the parts are


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
    n_parts = min(N_PARTS, triton.cdiv(N, ROWS))
    parts = torch.empty(n_parts, F, dtype=torch.float32, device=out.device)
    grid = triton.cdiv(F, COLS), n_parts
    _through[grid](d_out, out, parts, N, F, rate, n_parts, ROWS=ROWS, COLS=COLS, num_warps=4)
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
