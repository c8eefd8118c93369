"""Additive attention of few queries: one program has the weights of a query's keys in its registers."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import compute_dtype

# Elements of the one live tile of keys by features, and of the tile whose gradient one program collects.
TILE, COLLECTED = 4096, (16, 128)


class RowArgs(NamedTuple):
    """An (N, T, width) tensor whose last axis is contiguous."""

    ptr: Tensor
    stride_n: int
    stride_t: int


class AdditiveSizes(NamedTuple):
    """Heads, queries, keys, and the widths of features and values."""

    H: int
    Q: int
    S: int
    F: int
    E: int


def additive_attention_short(f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
    """Return `softmax(w · tanh(f_q + f_k)) v` over the first `lengths[b]` keys; a query that sees none gets zeros.

    Features and values are (B, H, length, width), w is (H, F). Autocast's type is used where that is on.
    """
    return _AdditiveAttentionShort.apply(f_q, f_k, w, v, lengths)  # pyright: ignore[reportReturnType]


class _AdditiveAttentionShort(torch.autograd.Function):
    """Saves its inputs and the weights, which are few because the queries are; tanh is computed anew."""

    @staticmethod
    def forward(ctx: Any, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        (B, H, Q, _), (S, E) = f_q.shape, v.shape[2:]
        dtype = compute_dtype(f_q)
        ctx.dtypes = tuple(x.dtype for x in (f_q, f_k, w, v))
        q, k, values = (x.to(dtype).reshape(B * H, *x.shape[2:]).contiguous() for x in (f_q, f_k, v))
        out = torch.empty(B * H, Q, E, dtype=dtype, device=v.device)
        p = torch.empty(B * H, Q, S, dtype=torch.float32, device=v.device)
        attend(q, k, w, values, lengths, out, p)
        ctx.save_for_backward(q, k, w, values, p)
        return out.view(B, H, Q, E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, w, values, p = ctx.saved_tensors
        d_out = d_out.to(q.dtype).reshape(*q.shape[:2], -1).contiguous()
        d_scores, d_q = torch.empty_like(p), torch.empty_like(q)
        attend_backward(q, k, w, values, p, d_out, d_scores, d_q)
        d_k, d_w = collect_keys(q, k, w, d_scores)
        d_v = torch.bmm(p.to(q.dtype).transpose(1, 2), d_out)
        lead = (-1, len(w))
        grads = (d_q.unflatten(0, lead), d_k.unflatten(0, lead), d_w, d_v.unflatten(0, lead))
        return *(grad.to(dtype) for grad, dtype in zip(grads, ctx.dtypes, strict=True)), None


def attend(q: Tensor, k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None, out: Tensor, p: Tensor) -> None:
    """Write what queries (N, Q, F) get from keys (N, S, F) and values (N, S, E), and their weights (N, Q, S).

    N counts heads within sentences. Keys and values are contiguous; all else may be part of something larger.
    """
    sizes = _sizes(q, v, w)
    _attend_kernel[(len(q) * sizes.Q,)](_rows(q), k, w, v, lengths, _rows(out), _rows(p), sizes, **_blocks(sizes))


def attend_backward(
    q: Tensor, k: Tensor, w: Tensor, v: Tensor, p: Tensor, d_out: Tensor, d_scores: Tensor, d_q: Tensor
) -> None:
    """Write the gradients of scores (N, Q, S) and of queries; those of keys and values are collected later."""
    sizes = _sizes(q, v, w)
    grads = (_rows(d_out), _rows(d_scores), _rows(d_q))
    _attend_backward_kernel[(len(q) * sizes.Q,)](_rows(q), k, w, v, _rows(p), *grads, sizes, **_blocks(sizes))


def collect_keys(q: Tensor, k: Tensor, w: Tensor, d_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of keys and of w from all queries at once, always added in the same order."""
    N, rows, cols = len(q), *COLLECTED
    sizes = _sizes(q, k, w)
    n_rows = triton.cdiv(sizes.S, rows)
    d_k = torch.empty_like(k)
    parts = torch.empty(N // sizes.H, sizes.H, n_rows, sizes.F, dtype=torch.float32, device=k.device)
    _collect_keys_kernel[(N * n_rows, triton.cdiv(sizes.F, cols))](
        *(_rows(q), k, w, _rows(d_scores), d_k, parts, sizes, n_rows), ROWS=rows, COLS=cols, num_warps=4
    )
    return d_k, parts.sum(dim=(0, 2))


def _rows(x: Tensor) -> RowArgs:
    return RowArgs(x, *x.stride()[:2])


def _sizes(q: Tensor, v: Tensor, w: Tensor) -> AdditiveSizes:
    return AdditiveSizes(len(w), q.shape[1], v.shape[1], q.shape[2], v.shape[2])


def _blocks(sizes: AdditiveSizes) -> dict[str, int]:
    keys = max(16, triton.next_power_of_2(sizes.S))
    features, values = (max(16, min(TILE // keys, triton.next_power_of_2(width))) for width in (sizes.F, sizes.E))
    warps = 8 if keys * max(features, values) >= TILE else 4
    return {"BLOCK_S": keys, "BLOCK_F": features, "BLOCK_E": values, "num_warps": warps}


@triton.jit
def _tile(ptr, n, S, width, first, BLOCK_S: tl.constexpr, BLOCK: tl.constexpr):
    """Return some columns of all keys or values of a sentence, (BLOCK_S, BLOCK), zeros outside."""
    rows = tl.arange(0, BLOCK_S)[:, None]
    cols = first + tl.arange(0, BLOCK)[None, :]
    return tl.load(ptr + n * S * width + rows * width + cols, (rows < S) & (cols < width), 0.0).to(tl.float32)


@triton.jit
def _row_ptr(x, n, t):
    return x.ptr + n * x.stride_n + t * x.stride_t


@triton.jit
def _gates(q, k):
    """Return `r = 1 / (1 + e^{2(q + k)})`: tanh is 1 − 2r, its slope is 4(r − r²), and nothing overflows to NaN."""
    return 1.0 / (1.0 + tl.exp(2.0 * (q + k)))


@triton.jit
def _attend_kernel(
    q_arg, k_ptr, w_ptr, v_ptr, lengths_ptr, out_arg, p_arg, sizes,
    BLOCK_S: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, Q, S, F, E = sizes
    n, t = (tl.program_id(0) // Q).to(tl.int64), tl.program_id(0) % Q
    length = S
    if lengths_ptr is not None:
        length = tl.load(lengths_ptr + n // H).to(tl.int32)
    keys = tl.arange(0, BLOCK_S)
    against = tl.zeros([BLOCK_S, BLOCK_F], tl.float32)
    for first in range(0, F, BLOCK_F):
        cols = first + tl.arange(0, BLOCK_F)
        q = tl.load(_row_ptr(q_arg, n, t) + cols, cols < F, 0.0).to(tl.float32)
        w = tl.load(w_ptr + n % H * F + cols, cols < F, 0.0).to(tl.float32)
        against += _gates(q[None, :], _tile(k_ptr, n, S, F, first, BLOCK_S, BLOCK_F)) * w[None, :]
    # w · tanh is Σw − 2 w · r, and Σw, the same for all keys, cancels in the softmax.
    scores = tl.where(keys < length, -2.0 * tl.sum(against, 1), -1e30)
    powers = tl.where(keys < length, tl.exp(scores - tl.max(scores, 0)), 0.0)
    total = tl.sum(powers, 0)
    p = powers / tl.where(total > 0.0, total, 1.0)
    tl.store(_row_ptr(p_arg, n, t) + keys, p, keys < S)
    for first in range(0, E, BLOCK_E):
        cols = first + tl.arange(0, BLOCK_E)
        out = tl.sum(p[:, None] * _tile(v_ptr, n, S, E, first, BLOCK_S, BLOCK_E), 0)
        tl.store(_row_ptr(out_arg, n, t) + cols, out.to(out_arg.ptr.dtype.element_ty), cols < E)


@triton.jit
def _attend_backward_kernel(
    q_arg, k_ptr, w_ptr, v_ptr, p_arg, d_out_arg, d_scores_arg, d_q_arg, sizes,
    BLOCK_S: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    H, Q, S, F, E = sizes
    n, t = (tl.program_id(0) // Q).to(tl.int64), tl.program_id(0) % Q
    keys = tl.arange(0, BLOCK_S)
    along = tl.zeros([BLOCK_S, BLOCK_E], tl.float32)
    for first in range(0, E, BLOCK_E):
        cols = first + tl.arange(0, BLOCK_E)
        d_out = tl.load(_row_ptr(d_out_arg, n, t) + cols, cols < E, 0.0).to(tl.float32)
        along += _tile(v_ptr, n, S, E, first, BLOCK_S, BLOCK_E) * d_out[None, :]
    d_p = tl.sum(along, 1)
    p = tl.load(_row_ptr(p_arg, n, t) + keys, keys < S, 0.0)
    d_scores = p * (d_p - tl.sum(p * d_p, 0))
    tl.store(_row_ptr(d_scores_arg, n, t) + keys, d_scores, keys < S)
    for first in range(0, F, BLOCK_F):
        cols = first + tl.arange(0, BLOCK_F)
        q = tl.load(_row_ptr(q_arg, n, t) + cols, cols < F, 0.0).to(tl.float32)
        w = tl.load(w_ptr + n % H * F + cols, cols < F, 0.0).to(tl.float32)
        r = _gates(q[None, :], _tile(k_ptr, n, S, F, first, BLOCK_S, BLOCK_F))
        d_q = 4.0 * w * tl.sum(d_scores[:, None] * (r - r * r), 0)
        tl.store(_row_ptr(d_q_arg, n, t) + cols, d_q.to(d_q_arg.ptr.dtype.element_ty), cols < F)


@triton.jit
def _collect_keys_kernel(
    q_arg, k_ptr, w_ptr, d_scores_arg, d_k_ptr, parts_ptr, sizes, n_rows, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    H, S, F = sizes.H, sizes.S, sizes.F
    n, part = (tl.program_id(0) // n_rows).to(tl.int64), tl.program_id(0) % n_rows
    keys = part * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (keys[:, None] < S) & (cols[None, :] < F)
    at = n * S * F + keys[:, None] * F + cols[None, :]
    k = tl.load(k_ptr + at, inside, 0.0).to(tl.float32)
    w = tl.load(w_ptr + n % H * F + cols, cols < F, 0.0).to(tl.float32)
    slopes = tl.zeros([ROWS, COLS], tl.float32)
    shares = tl.zeros([ROWS, COLS], tl.float32)
    q_ptr = q_arg.ptr + n * q_arg.stride_n + cols
    d_scores_ptr = d_scores_arg.ptr + n * d_scores_arg.stride_n + keys
    for _ in range(sizes.Q):
        q = tl.load(q_ptr, cols < F, 0.0).to(tl.float32)
        r = _gates(q[None, :], k)
        share = tl.load(d_scores_ptr, keys < S, 0.0)[:, None] * r
        shares += share
        slopes += share * (1.0 - r)
        q_ptr += q_arg.stride_t
        d_scores_ptr += d_scores_arg.stride_t
    tl.store(d_k_ptr + at, (4.0 * w[None, :] * slopes).to(d_k_ptr.dtype.element_ty), inside)
    # A query's d_scores sum to zero, so that of tanh = 1 − 2r the second part alone remains.
    tl.store(parts_ptr + tl.program_id(0) * F + cols, -2.0 * tl.sum(shares, 0), cols < F)
