"""Additive attention of few queries: one program has the weights of a query's keys in its registers."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Elements of the one live tile of keys by features, and of the tile whose gradient one program collects.
TILE, COLLECTED = 4096, (16, 128)


def additive_attention(f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
    """Gives `softmax(w · tanh(f_q + f_k)) v` over the first `lengths[b]` keys; a query that sees none gives zeros.

    Features and values are (B, H, length, width), w is (H, F). Autocast's type is used where that is on.
    """
    return AdditiveAttention.apply(f_q, f_k, w, v, lengths)  # pyright: ignore[reportReturnType]


class AdditiveAttention(torch.autograd.Function):
    """Keeps its inputs and the weights, which are few because the queries are; tanh is computed anew."""

    @staticmethod
    def forward(ctx: Any, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        (B, H, Q, _), (S, E) = f_q.shape, v.shape[2:]
        kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else f_q.dtype
        ctx.kinds = tuple(x.dtype for x in (f_q, f_k, w, v))
        q, k, values = (x.to(kind).reshape(B * H, *x.shape[2:]).contiguous() for x in (f_q, f_k, v))
        out = torch.empty(B * H, Q, E, dtype=kind, device=v.device)
        p = torch.empty(B * H, Q, S, dtype=torch.float32, device=v.device)
        look(q, k, w, values, lengths, out, p)
        ctx.save_for_backward(q, k, w, values, p)
        return out.view(B, H, Q, E)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, w, values, p = ctx.saved_tensors
        d_out = d_out.to(q.dtype).reshape(*q.shape[:2], -1).contiguous()
        d_scores, d_q = torch.empty_like(p), torch.empty_like(q)
        look_backward(q, k, w, values, p, d_out, d_scores, d_q)
        d_k, d_w = collect_keys(q, k, w, d_scores)
        d_v = torch.bmm(p.to(q.dtype).transpose(1, 2), d_out)
        lead = (-1, len(w))
        grads = (d_q.unflatten(0, lead), d_k.unflatten(0, lead), d_w, d_v.unflatten(0, lead))
        return *(grad.to(kind) for grad, kind in zip(grads, ctx.kinds, strict=True)), None


def look(q: Tensor, k: Tensor, w: Tensor, v: Tensor, lengths: Tensor | None, out: Tensor, p: Tensor) -> None:
    """Writes what queries (N, Q, F) see among keys (N, S, F) and values (N, S, E), and their weights (N, Q, S).

    N counts heads within sentences. Keys and values lie without gaps; all else may be part of something larger.
    """
    (N, Q, F), (S, E) = q.shape, v.shape[1:]
    _look[(N * Q,)](
        *(q, k, w, v, lengths, out, p, *_strides(q, out, p), len(w), Q, S, F, E),
        PADDED=lengths is not None,
        **_blocks(S, F, E),
    )


def look_backward(
    q: Tensor, k: Tensor, w: Tensor, v: Tensor, p: Tensor, d_out: Tensor, d_scores: Tensor, d_q: Tensor
) -> None:
    """Writes the gradients of scores (N, Q, S) and of queries; those of keys and values are collected later."""
    (N, Q, F), (S, E) = q.shape, v.shape[1:]
    _look_backward[(N * Q,)](
        *(q, k, w, v, p, d_out, d_scores, d_q, *_strides(q, p, d_out, d_scores, d_q), len(w), Q, S, F, E),
        **_blocks(S, F, E),
    )


def collect_keys(q: Tensor, k: Tensor, w: Tensor, d_scores: Tensor) -> tuple[Tensor, Tensor]:
    """Gives the gradients of keys and of w from all queries at once, always added in the same order."""
    (N, Q, F), S, H = q.shape, k.shape[1], len(w)
    rows, cols = COLLECTED
    n_rows = triton.cdiv(S, rows)
    d_k, parts = torch.empty_like(k), torch.empty(N // H, H, n_rows, F, dtype=torch.float32, device=k.device)
    _collect_keys[(N * n_rows, triton.cdiv(F, cols))](
        *(q, k, w, d_scores, d_k, parts, *_strides(q, d_scores), H, Q, S, F, n_rows), ROWS=rows, COLS=cols, num_warps=4
    )
    return d_k, parts.sum(dim=(0, 2))


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:2]]


def _blocks(S: int, F: int, E: int) -> dict[str, int]:
    keys = max(16, triton.next_power_of_2(S))
    features, values = (max(16, min(TILE // keys, triton.next_power_of_2(width))) for width in (F, E))
    warps = 8 if keys * max(features, values) >= TILE else 4
    return {"BLOCK_S": keys, "BLOCK_F": features, "BLOCK_E": values, "num_warps": warps}


@triton.jit
def _tile(at, n, S, width, first, BLOCK_S: tl.constexpr, BLOCK: tl.constexpr):
    """Gives some columns of all keys or values of a sentence, (BLOCK_S, BLOCK), zeros outside."""
    rows = tl.arange(0, BLOCK_S)[:, None]
    cols = first + tl.arange(0, BLOCK)[None, :]
    place = at + n * S * width + rows * width + cols
    return tl.load(place, (rows < S) & (cols < width), 0.0).to(tl.float32)


@triton.jit
def _gates(q, k):
    """Gives `r = 1 / (1 + e^{2(q + k)})`: tanh is 1 − 2r, its slope is 4(r − r²), and no power is too large."""
    return 1.0 / (1.0 + tl.exp(2.0 * (q + k)))


@triton.jit
def _look(
    q_at, k_at, w_at, v_at, lengths_at, out_at, p_at, q_n, q_t, out_n, out_t, p_n, p_t, H, Q, S, F, E,
    BLOCK_S: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_E: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    n, t = (tl.program_id(0) // Q).to(tl.int64), tl.program_id(0) % Q
    length = S
    if PADDED:
        length = tl.load(lengths_at + n // H).to(tl.int32)
    keys = tl.arange(0, BLOCK_S)
    against = tl.zeros([BLOCK_S, BLOCK_F], tl.float32)
    for first in range(0, F, BLOCK_F):
        cols = first + tl.arange(0, BLOCK_F)
        q = tl.load(q_at + n * q_n + t * q_t + cols, cols < F, 0.0).to(tl.float32)
        w = tl.load(w_at + n % H * F + cols, cols < F, 0.0).to(tl.float32)
        against += _gates(q[None, :], _tile(k_at, n, S, F, first, BLOCK_S, BLOCK_F)) * w[None, :]
    # w · tanh is Σw − 2 w · r, and Σw, the same for all keys, cancels in the softmax.
    scores = tl.where(keys < length, -2.0 * tl.sum(against, 1), -1e30)
    powers = tl.where(keys < length, tl.exp(scores - tl.max(scores, 0)), 0.0)
    total = tl.sum(powers, 0)
    p = powers / tl.where(total > 0.0, total, 1.0)
    tl.store(p_at + n * p_n + t * p_t + keys, p, keys < S)
    for first in range(0, E, BLOCK_E):
        cols = first + tl.arange(0, BLOCK_E)
        out = tl.sum(p[:, None] * _tile(v_at, n, S, E, first, BLOCK_S, BLOCK_E), 0)
        tl.store(out_at + n * out_n + t * out_t + cols, out.to(out_at.dtype.element_ty), cols < E)


@triton.jit
def _look_backward(
    q_at, k_at, w_at, v_at, p_at, d_out_at, d_scores_at, d_q_at,
    q_n, q_t, p_n, p_t, do_n, do_t, ds_n, ds_t, dq_n, dq_t, H, Q, S, F, E,
    BLOCK_S: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_E: tl.constexpr,
):  # fmt: skip
    n, t = (tl.program_id(0) // Q).to(tl.int64), tl.program_id(0) % Q
    keys = tl.arange(0, BLOCK_S)
    along = tl.zeros([BLOCK_S, BLOCK_E], tl.float32)
    for first in range(0, E, BLOCK_E):
        cols = first + tl.arange(0, BLOCK_E)
        d_out = tl.load(d_out_at + n * do_n + t * do_t + cols, cols < E, 0.0).to(tl.float32)
        along += _tile(v_at, n, S, E, first, BLOCK_S, BLOCK_E) * d_out[None, :]
    d_p = tl.sum(along, 1)
    p = tl.load(p_at + n * p_n + t * p_t + keys, keys < S, 0.0)
    d_scores = p * (d_p - tl.sum(p * d_p, 0))
    tl.store(d_scores_at + n * ds_n + t * ds_t + keys, d_scores, keys < S)
    for first in range(0, F, BLOCK_F):
        cols = first + tl.arange(0, BLOCK_F)
        q = tl.load(q_at + n * q_n + t * q_t + cols, cols < F, 0.0).to(tl.float32)
        w = tl.load(w_at + n % H * F + cols, cols < F, 0.0).to(tl.float32)
        r = _gates(q[None, :], _tile(k_at, n, S, F, first, BLOCK_S, BLOCK_F))
        d_q = 4.0 * w * tl.sum(d_scores[:, None] * (r - r * r), 0)
        tl.store(d_q_at + n * dq_n + t * dq_t + cols, d_q.to(d_q_at.dtype.element_ty), cols < F)


@triton.jit
def _collect_keys(
    q_at, k_at, w_at, d_scores_at, d_k_at, parts_at, q_n, q_t, ds_n, ds_t, H, Q, S, F, n_rows,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    n, part = (tl.program_id(0) // n_rows).to(tl.int64), tl.program_id(0) % n_rows
    keys = part * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (keys[:, None] < S) & (cols[None, :] < F)
    place = n * S * F + keys[:, None] * F + cols[None, :]
    k = tl.load(k_at + place, inside, 0.0).to(tl.float32)
    w = tl.load(w_at + n % H * F + cols, cols < F, 0.0).to(tl.float32)
    slopes = tl.zeros([ROWS, COLS], tl.float32)
    shares = tl.zeros([ROWS, COLS], tl.float32)
    q_place = q_at + n * q_n + cols
    d_scores_place = d_scores_at + n * ds_n + keys
    for _ in range(Q):
        q = tl.load(q_place, cols < F, 0.0).to(tl.float32)
        r = _gates(q[None, :], k)
        share = tl.load(d_scores_place, keys < S, 0.0)[:, None] * r
        shares += share
        slopes += share * (1.0 - r)
        q_place += q_t
        d_scores_place += ds_t
    tl.store(d_k_at + place, (4.0 * w[None, :] * slopes).to(d_k_at.dtype.element_ty), inside)
    # A query's d_scores sum to zero, so that of tanh = 1 − 2r the second part alone remains.
    tl.store(parts_at + tl.program_id(0) * F + cols, -2.0 * tl.sum(shares, 0), cols < F)
