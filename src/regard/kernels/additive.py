"""Additive attention of many queries: scores of some of them at a time, and the softmax that mixes values by them."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.additive_backward import PairArgs, by_feature, chunk_rows, chunks, gradients, score
from regard.kernels.primitives import (
    DropoutArgs,
    allowed_pairs,
    block_size,
    compute_dtype,
    dot_precision,
    dropout_args,
    dropout_mask,
    mask_args,
)
from regard.mask import Mask

SHAPE = {"ROWS": 32, "COLS": 64, "num_warps": 4, "num_stages": 3}


def additive_attention(
    f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
) -> Tensor:
    """Return `softmax(w · tanh(f_q + f_k)) v` with one tanh for each pair and feature; Θ(Q + K) memory.

    To that come the scores of some queries, a few million numbers however long the inputs are. Features and values are
    (B, H, length, width), w is (H, F). A query that sees no key gets zeros. `hardware` takes the GPU's approximate
    tanh. Autocast's type is used where that is on; sums are in float32.
    """
    return _AdditiveAttention.apply(f_q, f_k, w, v, mask, dropout, hardware)  # pyright: ignore[reportReturnType]


class _AdditiveAttention(torch.autograd.Function):
    """Saves its inputs, the output and one number for each query; weights and tanh are computed anew."""

    @staticmethod
    def forward(
        ctx: Any, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
    ) -> Tensor:
        B, H, Q, E = *f_q.shape[:3], v.shape[3]
        dtype = compute_dtype(f_q)
        ctx.dtypes = tuple(x.dtype for x in (f_q, f_k, w, v))
        q, k, values = (x.to(dtype).reshape(B * H, *x.shape[2:]).contiguous() for x in (f_q, f_k, v))
        w = w.to(torch.float32).contiguous()
        ctx.mask, ctx.dropout, ctx.hardware = mask, dropout_args(dropout, v.device), hardware
        out, log_sum = _attend(q, k, w, values, mask, ctx.dropout, hardware)
        ctx.save_for_backward(q, k, w, values, out, log_sum)
        return out.view(B, H, Q, E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, _, w, _, out, _ = ctx.saved_tensors
        d_out = d_out.to(q.dtype).reshape(out.shape).contiguous()
        d_q, d_k, d_w, d_v = gradients(ctx.saved_tensors, d_out, ctx.mask, ctx.dropout, ctx.hardware)
        lead = (-1, len(w))
        shaped = (d_q.unflatten(0, lead), d_k.unflatten(0, lead), d_w, d_v.unflatten(0, lead))
        return *(grad.to(dtype) for grad, dtype in zip(shaped, ctx.dtypes, strict=True)), None, None, None


def _attend(
    q: Tensor, k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: DropoutArgs, hardware: bool
) -> tuple[Tensor, Tensor]:
    """Return what queries (N, Q, F) get from keys (N, K, F), and the logarithm of their softmax's denominator."""
    (N, Q, _), (K, E) = q.shape, v.shape[1:]
    out = torch.empty(N, Q, E, dtype=v.dtype, device=v.device)
    log_sum = torch.empty(N, Q, dtype=torch.float32, device=v.device)
    args, features = mask_args(mask, q.device), by_feature(q, k, w)
    for n, chunk in chunks(N, Q, K):
        scores = score(features, n, chunk, K, args, hardware)
        _mix_kernel[triton.cdiv(chunk.size, SHAPE["ROWS"]), n](
            *(scores, v, out, log_sum, args, dropout, chunk, PairArgs(len(w), Q, K, *scores.shape[1:]), E),
            BLOCK_E=block_size(E),
            PRECISION=dot_precision(q.dtype),
            **SHAPE,
        )
    return out, log_sum


@triton.jit
def _mix_kernel(
    scores_ptr, v_ptr, out_ptr, log_sum_ptr, mask, dropout, chunk, pairs, E,
    BLOCK_E: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    H, Q, K, keys, step = pairs
    local, n, index, rows, low, high = chunk_rows(chunk, mask, H, K, 1, ROWS)
    end = chunk.start + chunk.size
    wide = tl.arange(0, BLOCK_E)
    scores_ptr += local * keys * step
    v_ptr += n * K * E
    highest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_E], tl.float32)
    for first in range(tl.min(low, 0) // COLS * COLS, tl.max(high, 0), COLS):
        cols = first + tl.arange(0, COLS)
        scores = tl.load(scores_ptr + cols[None, :] * step + index[:, None])
        allowed = allowed_pairs(
            rows[:, None], cols[None, :], low[:, None], high[:, None], n // H, n % H, end, K, mask
        )  # fmt: skip
        scores = tl.where(allowed, scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.where(allowed, tl.exp(scores - higher[:, None]), 0.0)
        rescale = tl.exp(highest - higher)
        total = total * rescale + tl.sum(p, 1)
        if dropout.seed_ptr is not None:
            kept = dropout_mask(dropout, n, rows[:, None] * K + cols[None, :])
            p = tl.where(kept, p / (1 - dropout.rate), 0.0)
        ptr = v_ptr + cols.to(tl.int64)[:, None] * E + wide[None, :]
        v = tl.load(ptr, (cols < K)[:, None] & (wide < E)[None, :], 0.0)
        mixed = mixed * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        highest = higher
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    # +∞ for a query that sees no key, so that all its weights are zeros in the backward pass.
    tl.store(log_sum_ptr + n * Q + rows, tl.where(empty, float("inf"), highest + tl.log(total)), rows < end)
    ptr = out_ptr + n * Q * E + rows.to(tl.int64)[:, None] * E + wide[None, :]
    out = (mixed / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(ptr, out, (rows < end)[:, None] & (wide < E)[None, :])
