"""Cross-entropy with label smoothing, alone and with R-Drop; each leaves the gradient where the logits were."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


def smoothed_loss(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return both sums of `smoothed_cross_entropy` over rows where the mask is true: smoothed, and without smoothing.

    The gradient of the first overwrites `logits`, (N, V).
    """
    N, V = logits.shape
    rows = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    _smoothed_loss_kernel[(N,)](logits, labels, mask, rows, N, V, smoothing, BLOCK=_block(V), num_warps=8)
    loss, plain = rows.sum(dim=1)
    return loss, plain


def rdrop_loss(logits: Tensor, labels: Tensor, mask: Tensor, smoothing: float, weight: float) -> tuple[Tensor, Tensor]:
    """Return both sums of `r_drop_cross_entropy` over rows where the mask is true: R-Drop (arXiv:2106.14448).

    The lower half of the rows, (2N, V), is the second pass; `labels` and `mask` are those of one half. The gradient of
    the first sum overwrites `logits`.
    """
    N, V = len(logits) // 2, logits.shape[1]
    rows = torch.empty(2, N, dtype=torch.float32, device=logits.device)
    _rdrop_loss_kernel[(N,)](logits, labels, mask, rows, N, V, smoothing, weight, BLOCK=_block(V), num_warps=8)
    loss, plain = rows.sum(dim=1)
    return loss, plain


def _block(V: int) -> int:
    return min(BLOCK, triton.next_power_of_2(V))


@triton.jit
def _log_sum(row_ptr, V, BLOCK: tl.constexpr):
    """Return log Σ exp of a row, and the row's mean."""
    highest = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    level = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        logits = tl.load(row_ptr + cols, cols < V, -float("inf")).to(tl.float32)
        higher = tl.maximum(highest, logits)
        # Where nothing has been seen yet both are −∞, whose difference is NaN.
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(highest - safe) + tl.exp(logits - safe)
        highest = higher
        level += tl.where(cols < V, logits, 0.0)
    peak = tl.max(highest, 0)
    total = tl.sum(tl.where(highest == -float("inf"), 0.0, total * tl.exp(highest - peak)), 0)
    return peak + tl.log(total), tl.sum(level, 0) / V


@triton.jit
def _smoothed_loss_kernel(logits_ptr, labels_ptr, mask_ptr, rows_ptr, N, V, smoothing, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    row_ptr = logits_ptr + row.to(tl.int64) * V
    counts = tl.load(mask_ptr + row).to(tl.float32)
    label = tl.load(labels_ptr + row)
    chosen = tl.load(row_ptr + label).to(tl.float32)  # read first of all: it is overwritten below
    log_sum, mean = _log_sum(row_ptr, V, BLOCK)
    plain = log_sum - chosen
    loss = (1 - smoothing) * plain + smoothing * (log_sum - mean)
    tl.store(rows_ptr + row, loss * counts)
    tl.store(rows_ptr + N + row, plain * counts)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        logits = tl.load(row_ptr + cols, cols < V, 0.0).to(tl.float32)
        gradient = tl.exp(logits - log_sum) - smoothing / V - tl.where(cols == label, 1 - smoothing, 0.0)
        tl.store(row_ptr + cols, (gradient * counts).to(row_ptr.dtype.element_ty), cols < V)


@triton.jit
def _rdrop_loss_kernel(logits_ptr, labels_ptr, mask_ptr, rows_ptr, N, V, smoothing, weight, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    p_ptr = logits_ptr + row.to(tl.int64) * V
    q_ptr = logits_ptr + (row + N).to(tl.int64) * V
    counts = tl.load(mask_ptr + row).to(tl.float32)
    label = tl.load(labels_ptr + row)
    p_chosen = tl.load(p_ptr + label).to(tl.float32)  # read first of all: they are overwritten below
    q_chosen = tl.load(q_ptr + label).to(tl.float32)
    p_sum, p_mean = _log_sum(p_ptr, V, BLOCK)
    q_sum, q_mean = _log_sum(q_ptr, V, BLOCK)
    p_to_q = tl.zeros([BLOCK], tl.float32)
    q_to_p = tl.zeros([BLOCK], tl.float32)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + cols, cols < V, 0.0).to(tl.float32) - p_sum
        q = tl.load(q_ptr + cols, cols < V, 0.0).to(tl.float32) - q_sum
        p_to_q += tl.where(cols < V, tl.exp(p) * (p - q), 0.0)
        q_to_p += tl.where(cols < V, tl.exp(q) * (q - p), 0.0)
    p_kl = tl.sum(p_to_q, 0)
    q_kl = tl.sum(q_to_p, 0)
    plain = (p_sum - p_chosen + q_sum - q_chosen) / 2
    loss = (1 - smoothing) * plain + smoothing * (p_sum - p_mean + q_sum - q_mean) / 2
    tl.store(rows_ptr + row, (loss + weight / 4 * (p_kl + q_kl)) * counts)
    tl.store(rows_ptr + N + row, plain * counts)
    for first in range(0, V, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        p = tl.load(p_ptr + cols, cols < V, 0.0).to(tl.float32) - p_sum
        q = tl.load(q_ptr + cols, cols < V, 0.0).to(tl.float32) - q_sum
        target = smoothing / V + tl.where(cols == label, 1 - smoothing, 0.0)
        p_share, q_share = tl.exp(p), tl.exp(q)
        d_p = (p_share - target) / 2 + weight / 4 * (p_share * (p - q - p_kl) + p_share - q_share)
        d_q = (q_share - target) / 2 + weight / 4 * (q_share * (q - p - q_kl) + q_share - p_share)
        tl.store(p_ptr + cols, (d_p * counts).to(p_ptr.dtype.element_ty), cols < V)
        tl.store(q_ptr + cols, (d_q * counts).to(q_ptr.dtype.element_ty), cols < V)
