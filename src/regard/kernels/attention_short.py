"""Attention between short sequences: one program has all queries and keys of a head in its registers."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import block_size, contiguous_rows, dot_precision, head_args, head_ptr


class ShortSizes(NamedTuple):
    """Heads, queries, keys, and the widths of keys and values."""

    H: int
    Q: int
    K: int
    E: int
    E3: int


class ShortBlocks(NamedTuple):
    """The powers of two that hold queries, keys, and the features of keys and of values."""

    Q: int
    K: int
    E: int
    E3: int


def short_attention(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, causal: bool, scale: float) -> Tensor:
    """Return `softmax(scale · q kᵀ) v` over the first `lengths[b]` keys; a query that sees none gets zeros."""
    return _ShortAttention.apply(q, k, v, lengths, causal, scale)  # pyright: ignore[reportReturnType]


class _ShortAttention(torch.autograd.Function):
    """Saves its inputs alone: the weights are computed anew in the backward pass, which is one kernel too."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        q, k, v = (contiguous_rows(x) for x in (q, k, v))
        out = _empty_heads(v, q.shape[2])
        sizes, constants = _sizes(q, k, v, causal)
        _forward_kernel[(q.shape[0] * q.shape[1],)](
            *(head_args(q), head_args(k), head_args(v), head_args(out), lengths, sizes, scale), **constants
        )
        ctx.save_for_backward(q, k, v, lengths)
        ctx.causal, ctx.scale = causal, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, k, v, lengths = ctx.saved_tensors
        d_q, d_k, d_v = _empty_gradients(q, k, v)
        sizes, constants = _sizes(q, k, v, ctx.causal)
        tensors = (q, k, v, contiguous_rows(d_out), d_q, d_k, d_v)
        _backward_kernel[(q.shape[0] * q.shape[1],)](*map(head_args, tensors), lengths, sizes, ctx.scale, **constants)
        return d_q, d_k, d_v, None, None, None


def _empty_heads(x: Tensor, n: int) -> Tensor:
    """Return an empty tensor with the heads of x side by side in each of n rows, as the projections want them."""
    B, H, _, E = x.shape
    return torch.empty(B, n, H, E, dtype=x.dtype, device=x.device).transpose(1, 2)


def _empty_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty gradients: those of keys and values in one block, and the queries' too in self-attention.

    The three then come from one product, whose gradient is to be in one block.
    """
    if k.shape != v.shape:
        d_q, d_k, d_v = (_empty_heads(x, x.shape[2]) for x in (q, k, v))
        return d_q, d_k, d_v
    B, H, K, E = k.shape
    block = torch.empty(B, K, 3 if q.shape == k.shape else 2, H, E, dtype=k.dtype, device=k.device)
    *d_q, d_k, d_v = block.transpose(2, 3).transpose(1, 2).unbind(3)  # each (B, H, K, E)
    return d_q[0] if d_q else _empty_heads(q, q.shape[2]), d_k, d_v


def _sizes(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[ShortSizes, dict[str, Any]]:
    (_, H, Q, E), (K, E3) = q.shape, v.shape[2:]
    blocks = ShortBlocks(block_size(Q), block_size(K), block_size(E), block_size(E3))
    warps = 2 if max(blocks.Q, blocks.K) <= 32 else 4
    constants = {"BLOCK": blocks, "CAUSAL": causal, "PRECISION": dot_precision(q.dtype), "num_warps": warps}
    return ShortSizes(H, Q, K, E, E3), constants


@triton.jit
def _tile(x, n, width, H, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return where this program's vectors of x are, and which of them are inside."""
    batch, head = tl.program_id(0) // H, tl.program_id(0) % H
    rows = tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, COLS)[None, :]
    return head_ptr(x, batch.to(tl.int64), head) + rows * x.stride_t + cols, (rows < n) & (cols < width)


@triton.jit
def _load(x, n, width, H, ROWS: tl.constexpr, COLS: tl.constexpr):
    ptr, inside = _tile(x, n, width, H, ROWS, COLS)
    return tl.load(ptr, inside, 0.0)


@triton.jit
def _store(x, tile, n, width, H, ROWS: tl.constexpr, COLS: tl.constexpr):
    ptr, inside = _tile(x, n, width, H, ROWS, COLS)
    tl.store(ptr, tile.to(x.ptr.dtype.element_ty), inside)


@triton.jit
def _inputs(q, k, v, sizes, BLOCK: tl.constexpr):
    return (
        _load(q, sizes.Q, sizes.E, sizes.H, BLOCK.Q, BLOCK.E),
        _load(k, sizes.K, sizes.E, sizes.H, BLOCK.K, BLOCK.E),
        _load(v, sizes.K, sizes.E3, sizes.H, BLOCK.K, BLOCK.E3),
    )


@triton.jit
def _weights(
    q, k, lengths_ptr, sizes, scale, BLOCK: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Return the weight of every key for every query: softmax over the allowed ones, zeros where there are none."""
    length = sizes.K
    if lengths_ptr is not None:
        length = tl.load(lengths_ptr + tl.program_id(0) // sizes.H).to(tl.int32)
    rows = tl.arange(0, BLOCK.Q)[:, None]
    cols = tl.arange(0, BLOCK.K)[None, :]
    allowed = (cols < length) & (rows < sizes.Q)
    if CAUSAL:
        allowed = allowed & (cols <= rows)
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    scores = tl.where(allowed, scores, -1e30)
    powers = tl.where(allowed, tl.exp(scores - tl.max(scores, 1)[:, None]), 0.0)
    total = tl.sum(powers, 1)[:, None]
    return powers / tl.where(total > 0.0, total, 1.0)


@triton.jit
def _forward_kernel(
    q_arg, k_arg, v_arg, out_arg, lengths_ptr, sizes, scale,
    BLOCK: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    q, k, v = _inputs(q_arg, k_arg, v_arg, sizes, BLOCK)
    weights = _weights(q, k, lengths_ptr, sizes, scale, BLOCK, CAUSAL, PRECISION)
    out = tl.dot(weights.to(v.dtype), v, input_precision=PRECISION)
    _store(out_arg, out, sizes.Q, sizes.E3, sizes.H, BLOCK.Q, BLOCK.E3)


@triton.jit
def _backward_kernel(
    q_arg, k_arg, v_arg, d_out_arg, d_q_arg, d_k_arg, d_v_arg, lengths_ptr, sizes, scale,
    BLOCK: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    q, k, v = _inputs(q_arg, k_arg, v_arg, sizes, BLOCK)
    d_out = _load(d_out_arg, sizes.Q, sizes.E3, sizes.H, BLOCK.Q, BLOCK.E3)
    weights = _weights(q, k, lengths_ptr, sizes, scale, BLOCK, CAUSAL, PRECISION)
    d_v = tl.dot(tl.trans(weights.to(v.dtype)), d_out, input_precision=PRECISION)
    d_weights = tl.dot(d_out, tl.trans(v), input_precision=PRECISION)
    d_scores = weights * (d_weights - tl.sum(weights * d_weights, 1)[:, None]) * scale
    d_scores = d_scores.to(q.dtype)
    d_q = tl.dot(d_scores, k, input_precision=PRECISION)
    d_k = tl.dot(tl.trans(d_scores), q, input_precision=PRECISION)
    _store(d_q_arg, d_q, sizes.Q, sizes.E, sizes.H, BLOCK.Q, BLOCK.E)
    _store(d_k_arg, d_k, sizes.K, sizes.E, sizes.H, BLOCK.K, BLOCK.E)
    _store(d_v_arg, d_v, sizes.K, sizes.E3, sizes.H, BLOCK.K, BLOCK.E3)
