"""`x + dropout(update)` in one pass over memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.chance import uniform

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
        _forward[(triton.cdiv(n, BLOCK),)](x, update, out, seed, n, rate, BLOCK=BLOCK)
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
        _backward[(triton.cdiv(n, BLOCK),)](d_out, d_update, seed, n, ctx.rate, BLOCK=BLOCK)
        return d_out, d_update, None


@triton.jit
def _forward(x_at, update_at, out_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_at + at, inside, 0.0).to(tl.float32)
    update = tl.load(update_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(out_at + at, (x + tl.where(kept, update / (1 - rate), 0.0)).to(out_at.dtype.element_ty), inside)


@triton.jit
def _backward(d_out_at, d_update_at, seed_at, n, rate, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d_out = tl.load(d_out_at + at, inside, 0.0).to(tl.float32)
    kept = uniform(tl.load(seed_at), at) >= rate
    tl.store(d_update_at + at, tl.where(kept, d_out / (1 - rate), 0.0).to(d_update_at.dtype.element_ty), inside)
