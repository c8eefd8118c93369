"""Attention between short sequences: one program has all queries and keys of a head in its registers."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


def short_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Gives `softmax(scale · q kᵀ) v` over the first `lengths[b]` keys; a query that sees none gives zeros."""
    return ShortAttention.apply(q, k, v, lengths, causal, scale)  # pyright: ignore[reportReturnType]


class ShortAttention(torch.autograd.Function):
    """Keeps its inputs alone: the weights are made anew in the backward pass, which is one kernel too."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        q, k, v = (_by_rows(x) for x in (q, k, v))
        out = _beside(v, q.shape[2])
        _forward[(q.shape[0] * q.shape[1],)](
            *(q, k, v, out, lengths, *_strides(q, k, v, out), *_sizes(q, k, v), scale),
            **_constants(q, k, v, lengths, causal),
        )
        ctx.save_for_backward(q, k, v, lengths)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, v, lengths = ctx.saved_tensors
        d_out = _by_rows(d_out)
        d_q, d_k, d_v = _gradients(q, k, v)
        _backward[(q.shape[0] * q.shape[1],)](
            *(q, k, v, d_out, d_q, d_k, d_v, lengths, *_strides(q, k, v, d_out, d_q, d_k, d_v)),
            *(*_sizes(q, k, v), ctx.scale),
            **_constants(q, k, v, lengths, ctx.causal),
        )
        return d_q, d_k, d_v, None, None, None


def _by_rows(x: Tensor) -> Tensor:
    return x if x.stride(3) == 1 else x.contiguous()


def _beside(x: Tensor, n: int) -> Tensor:
    """Makes an empty tensor whose heads lie side by side in each row, as the projections want them."""
    B, H, _, E = x.shape
    return torch.empty(B, n, H, E, dtype=x.dtype, device=x.device).transpose(1, 2)


def _gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Makes room for gradients: those of keys and values in one piece, and queries too where a sequence sees itself.

    They come from one product then, whose gradient is to be in one piece.
    """
    if k.shape != v.shape:
        d_q, d_k, d_v = (_beside(x, x.shape[2]) for x in (q, k, v))
        return d_q, d_k, d_v
    B, H, K, E = k.shape
    room = torch.empty(B, K, 3 if q.shape == k.shape else 2, H, E, dtype=k.dtype, device=k.device)
    *d_q, d_k, d_v = room.transpose(2, 3).transpose(1, 2).unbind(3)  # each (B, H, K, E)
    return d_q[0] if d_q else _beside(q, q.shape[2]), d_k, d_v


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for x in tensors for stride in x.stride()[:3]]


def _sizes(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, int, int, int, int]:
    return q.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3]


def _constants(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, causal: bool) -> dict[str, Any]:
    blocks = [max(16, triton.next_power_of_2(n)) for n in (q.shape[2], k.shape[2], q.shape[3], v.shape[3])]
    names = dict(zip(("BLOCK_Q", "BLOCK_K", "BLOCK_E", "BLOCK_V"), blocks, strict=True))
    exact = "ieee" if q.dtype == torch.float32 else "tf32"
    flags = {"CAUSAL": causal, "PADDED": lengths is not None, "EXACT": exact}
    return {**names, **flags, "num_warps": 2 if max(blocks[:2]) <= 32 else 4}


@triton.jit
def _tile(at, batch, head, stride_b, stride_h, stride_t, n, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Gives where a head's vectors stand, and which of them are inside."""
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    place = at + batch.to(tl.int64) * stride_b + head * stride_h + rows * stride_t + cols
    return place, (rows < n) & (cols < width)


@triton.jit
def _weights(
    q, k, length, Q, scale, CAUSAL: tl.constexpr, EXACT: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    """Gives the weight of every key for every query: softmax over the allowed ones, zeros where there are none."""
    rows = tl.arange(0, BLOCK_Q)[:, None]
    cols = tl.arange(0, BLOCK_K)[None, :]
    allowed = (cols < length) & (rows < Q)
    if CAUSAL:
        allowed = allowed & (cols <= rows)
    scores = tl.dot(q, tl.trans(k), input_precision=EXACT) * scale
    scores = tl.where(allowed, scores, -1e30)
    powers = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(powers, 1)[:, None]
    return powers / tl.where(total > 0.0, total, 1.0)


@triton.jit
def _forward(
    q_at, k_at, v_at, out_at, lengths_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, out_b, out_h, out_t,
    H, Q, K, E, E3, scale,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0) // H, tl.program_id(0) % H
    length = K
    if PADDED:
        length = tl.load(lengths_at + batch).to(tl.int32)
    place, inside = _tile(q_at, batch, head, q_b, q_h, q_t, Q, E, BLOCK_Q, BLOCK_E)
    q = tl.load(place, inside, 0.0)
    place, inside = _tile(k_at, batch, head, k_b, k_h, k_t, K, E, BLOCK_K, BLOCK_E)
    k = tl.load(place, inside, 0.0)
    place, inside = _tile(v_at, batch, head, v_b, v_h, v_t, K, E3, BLOCK_K, BLOCK_V)
    v = tl.load(place, inside, 0.0)
    weights = _weights(q, k, length, Q, scale, CAUSAL, EXACT, BLOCK_Q, BLOCK_K)
    out = tl.dot(weights.to(v.dtype), v, input_precision=EXACT)
    place, inside = _tile(out_at, batch, head, out_b, out_h, out_t, Q, E3, BLOCK_Q, BLOCK_V)
    tl.store(place, out.to(out_at.dtype.element_ty), inside)


@triton.jit
def _backward(
    q_at, k_at, v_at, d_out_at, d_q_at, d_k_at, d_v_at, lengths_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, dq_b, dq_h, dq_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
    H, Q, K, E, E3, scale,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_V: tl.constexpr,
    CAUSAL: tl.constexpr, PADDED: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0) // H, tl.program_id(0) % H
    length = K
    if PADDED:
        length = tl.load(lengths_at + batch).to(tl.int32)
    place, inside = _tile(q_at, batch, head, q_b, q_h, q_t, Q, E, BLOCK_Q, BLOCK_E)
    q = tl.load(place, inside, 0.0)
    place, inside = _tile(k_at, batch, head, k_b, k_h, k_t, K, E, BLOCK_K, BLOCK_E)
    k = tl.load(place, inside, 0.0)
    place, inside = _tile(v_at, batch, head, v_b, v_h, v_t, K, E3, BLOCK_K, BLOCK_V)
    v = tl.load(place, inside, 0.0)
    place, inside = _tile(d_out_at, batch, head, o_b, o_h, o_t, Q, E3, BLOCK_Q, BLOCK_V)
    d_out = tl.load(place, inside, 0.0)
    weights = _weights(q, k, length, Q, scale, CAUSAL, EXACT, BLOCK_Q, BLOCK_K)
    d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_out, input_precision=EXACT)
    d_weights = tl.dot(d_out, tl.trans(v), input_precision=EXACT)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None]) * scale
    d_scores = d_scores.to(q.dtype)
    d_q = tl.dot(d_scores, k, input_precision=EXACT)
    d_k = tl.dot(tl.trans(d_scores), q, input_precision=EXACT)
    place, inside = _tile(d_q_at, batch, head, dq_b, dq_h, dq_t, Q, E, BLOCK_Q, BLOCK_E)
    tl.store(place, d_q.to(d_q_at.dtype.element_ty), inside)
    place, inside = _tile(d_k_at, batch, head, dk_b, dk_h, dk_t, K, E, BLOCK_K, BLOCK_E)
    tl.store(place, d_k.to(d_k_at.dtype.element_ty), inside)
    place, inside = _tile(d_v_at, batch, head, dv_b, dv_h, dv_t, K, E3, BLOCK_K, BLOCK_V)
    tl.store(place, d_v.to(d_v_at.dtype.element_ty), inside)
