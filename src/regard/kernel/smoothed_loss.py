"""The smoothed loss of logits and its gradient, which takes the logits' place, in two passes over each row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def smoothed_loss(logits: Tensor, say: Tensor, real: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Gives both sums of `smoothed_cross_entropy` over real rows, and leaves the first one's gradient in `logits`."""
    N, V = logits.shape
    rows = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    _loss[(N,)](logits, say, real, rows, N, V, smoothing, BLOCK=min(BLOCK, triton.next_power_of_2(V)), num_warps=8)
    loss, plain = rows.sum(dim=1)
    return loss, plain


@triton.jit
def _loss(logits_at, say_at, real_at, rows_at, N, V, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * V
    real = tl.load(real_at + row).to(tl.float32)
    say = tl.load(say_at + row)
    chosen = tl.load(logits_at + start + say).to(tl.float32)  # read first of all: its place is written to below
    highest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    level = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        logits = tl.load(logits_at + start + cols, cols < V, -float("inf")).to(tl.float32)
        higher = tl.maximum(highest, logits)
        # Where nothing has been seen yet both are −∞, whose difference is no number.
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(highest - safe) + tl.exp(logits - safe)
        highest = higher
        level += tl.where(cols < V, logits, 0.0)
    peak = tl.max(highest, 0)
    total = tl.sum(tl.where(highest == -float("inf"), 0.0, total * tl.exp(highest - peak)), 0)
    log_sum = peak + tl.log(total)
    plain = log_sum - chosen
    loss = (1 - smoothing) * plain + smoothing * (log_sum - tl.sum(level, 0) / V)
    tl.store(rows_at + row, loss * real)
    tl.store(rows_at + N + row, plain * real)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        logits = tl.load(logits_at + start + cols, cols < V, 0.0).to(tl.float32)
        gradient = tl.exp(logits - log_sum) - smoothing / V - tl.where(cols == say, 1 - smoothing, 0.0)
        tl.store(logits_at + start + cols, (gradient * real).to(logits_at.dtype.element_ty), cols < V)
