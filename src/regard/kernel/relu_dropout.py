"""`dropout(relu(x))` in one pass over memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.chance import uniform

BLOCK = 2048


def relu_dropout(x: Tensor, rate: float) -> Tensor:
    """Gives what the plain form gives, with dropout drawn anew by PyTorch's generator."""
    return ReluDropout.apply(x, rate)  # pyright: ignore[reportReturnType]


class ReluDropout(torch.autograd.Function):
    """Keeps its output alone: a feature learns just where that is above zero."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        seed = torch.randint(2**31 - 1, (1,), device=x.device, dtype=torch.int32)
        n = x.numel()
        _forward[(triton.cdiv(n, BLOCK),)](x, out, seed, n, rate, BLOCK=BLOCK)
        ctx.save_for_backward(out)
        ctx.rate = rate
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        (out,) = ctx.saved_tensors
        d_x = torch.empty_like(out)
        n = out.numel()
        _backward[(triton.cdiv(n, BLOCK),)](d_out.contiguous(), out, d_x, n, ctx.rate, BLOCK=BLOCK)
        return d_x, None


@triton.jit
def _forward(x_at, out_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(out_at + at, tl.where(kept & (x > 0), x / (1 - rate), 0.0).to(out_at.dtype.element_ty), inside)


@triton.jit
def _backward(d_out_at, out_at, d_x_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d_out = tl.load(d_out_at + at, inside, 0.0).to(tl.float32)
    out = tl.load(out_at + at, inside, 0.0).to(tl.float32)
    tl.store(d_x_at + at, tl.where(out > 0, d_out / (1 - rate), 0.0).to(d_x_at.dtype.element_ty), inside)
