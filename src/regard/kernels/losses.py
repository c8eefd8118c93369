"""Smoothed cross-entropy, R-Drop."""

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


def agreeing_loss(logits: Tensor, say: Tensor, real: Tensor, smoothing: float, weight: float) -> tuple[Tensor, Tensor]:
    """Gives both sums of `agreeing_cross_entropy` over real rows, and leaves the first one's gradient in `logits`.

    The lower half of the rows is the second pass; `say` and `real` are those of one half.
    """
    N, V = len(logits) // 2, logits.shape[1]
    rows = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(V))
    _agreeing_loss[(N,)](logits, say, real, rows, N, V, smoothing, weight, BLOCK=block, num_warps=8)
    loss, plain = rows.sum(dim=1)
    return loss, plain


@triton.jit
def _log_sum(row_at, V, BLOCK: tl.constexpr):
    """Gives log Σ exp of a row, and the mean of the row."""
    highest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    level = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        logits = tl.load(row_at + cols, cols < V, -float("inf")).to(tl.float32)
        higher = tl.maximum(highest, logits)
        # Where nothing has been seen yet both are −∞, whose difference is no number.
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(highest - safe) + tl.exp(logits - safe)
        highest = higher
        level += tl.where(cols < V, logits, 0.0)
    peak = tl.max(highest, 0)
    total = tl.sum(tl.where(highest == -float("inf"), 0.0, total * tl.exp(highest - peak)), 0)
    return peak + tl.log(total), tl.sum(level, 0) / V


@triton.jit
def _agreeing_loss(logits_at, say_at, real_at, rows_at, N, V, smoothing, weight, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    p_at = logits_at + row.to(tl.int64) * V
    q_at = logits_at + (row + N).to(tl.int64) * V
    real = tl.load(real_at + row).to(tl.float32)
    say = tl.load(say_at + row)
    p_said = tl.load(p_at + say).to(tl.float32)  # read first of all: their places are written to below
    q_said = tl.load(q_at + say).to(tl.float32)
    p_sum, p_mean = _log_sum(p_at, V, BLOCK)
    q_sum, q_mean = _log_sum(q_at, V, BLOCK)
    p_to_q = tl.zeros([BLOCK], tl.float32)
    q_to_p = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        p = tl.load(p_at + cols, cols < V, 0.0).to(tl.float32) - p_sum
        q = tl.load(q_at + cols, cols < V, 0.0).to(tl.float32) - q_sum
        p_to_q += tl.where(cols < V, tl.exp(p) * (p - q), 0.0)
        q_to_p += tl.where(cols < V, tl.exp(q) * (q - p), 0.0)
    p_apart = tl.sum(p_to_q, 0)
    q_apart = tl.sum(q_to_p, 0)
    plain = (p_sum - p_said + q_sum - q_said) / 2
    loss = (1 - smoothing) * plain + smoothing * (p_sum - p_mean + q_sum - q_mean) / 2
    tl.store(rows_at + row, (loss + weight / 4 * (p_apart + q_apart)) * real)
    tl.store(rows_at + N + row, plain * real)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        p = tl.load(p_at + cols, cols < V, 0.0).to(tl.float32) - p_sum
        q = tl.load(q_at + cols, cols < V, 0.0).to(tl.float32) - q_sum
        target = smoothing / V + tl.where(cols == say, 1 - smoothing, 0.0)
        p_share, q_share = tl.exp(p), tl.exp(q)
        d_p = (p_share - target) / 2 + weight / 4 * (p_share * (p - q - p_apart) + p_share - q_share)
        d_q = (q_share - target) / 2 + weight / 4 * (q_share * (q - p - q_apart) + q_share - p_share)
        tl.store(p_at + cols, (d_p * real).to(p_at.dtype.element_ty), cols < V)
        tl.store(q_at + cols, (d_q * real).to(q_at.dtype.element_ty), cols < V)
