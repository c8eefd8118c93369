"""A residual's sum and the norm that follows it, in one pass; without gradients."""

import torch
import triton
import triton.language as tl
from torch import Tensor


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
