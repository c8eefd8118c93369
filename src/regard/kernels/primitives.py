"""Random numbers, dropout masks, tanh, row sums, mask tiles."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.mask import Mask


@triton.jit
def uniform(seed, at):
    """Gives a number in [0, 1) for each place: a 32-bit mixer of two rounds, a fifth of the work of Philox."""
    x = (at.to(tl.uint32) * 0x9E3779B1) ^ seed.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return (x >> 8).to(tl.float32) * (1.0 / 16777216)


@triton.jit
def kept(seed_at, n, pairs, dropout):
    """Tells for numbered pairs of the n-th head, the same ones whenever it is asked."""
    return uniform(tl.load(seed_at).to(tl.uint32) + n.to(tl.uint32) * 0x85EBCA6B, pairs) >= dropout


@triton.jit
def tanh(x, HARDWARE: tl.constexpr):
    """Gives tanh of each number; the instruction is wrong by 5e-4 of the result at most, the formula by rounding alone.

    A multiprocessor does 16 of the instruction a cycle. Its packed forms for half precision are two instructions each
    in machine code, so they are no faster.
    """
    if HARDWARE:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    power = tl.exp(-2.0 * tl.abs(x))  # of a number that is never above 0, so that none is too large
    size = (1.0 - power) / (1.0 + power)
    return tl.where(x < 0.0, -size, size)


ROWS = 32


def delta(out: Tensor, d_out: Tensor) -> Tensor:
    """Gives `Σ out · d_out` over the last of four axes, (B · H, Q) in float32; a row's features lie side by side."""
    B, H, Q, E = out.shape
    products = torch.empty(B * H, Q, dtype=torch.float32, device=out.device)
    _delta[triton.cdiv(Q, ROWS), B * H](
        *(out, d_out, products, *out.stride()[:3], *d_out.stride()[:3], H, Q, E),
        WIDE=triton.next_power_of_2(E),
        ROWS=ROWS,
        num_warps=4,
    )
    return products


@triton.jit
def _delta(
    out_at, d_out_at, products_at, out_b, out_h, out_t, d_b, d_h, d_t, H, Q, E, ROWS: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    rows, cols = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDE)
    inside = (rows < Q)[:, None] & (cols < E)[None, :]
    far = rows.to(tl.int64)[:, None]
    out = tl.load(out_at + batch * out_b + head * out_h + far * out_t + cols[None, :], inside, 0.0)
    d_out = tl.load(d_out_at + batch * d_b + head * d_h + far * d_t + cols[None, :], inside, 0.0)
    products = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(products_at + tl.program_id(1).to(tl.int64) * Q + rows, products, rows < Q)


def sight(mask: Mask, device: torch.device) -> tuple[tuple[Any, ...], dict[str, bool]]:
    """Puts a mask into the arguments that `interval` and `cut` take, and the constants that say which rules there are.

    All rules but the boolean mask allow an interval of keys to each query, so tiles outside of it are never visited.
    """
    lengths, ends, allowed = (None if x is None else x.to(device) for x in _tensors(mask))
    strides = (0, 0) if lengths is None else (lengths.stride(0), lengths.stride(1) if lengths.dim() == 2 else 0)
    cuts = (0, 0, 0, 0) if allowed is None else _broadcast_strides(allowed)
    flags = {
        "PADDED": lengths is not None,
        "ENDED": ends is not None,
        "CAUSAL": mask.causal,
        "WINDOWED": mask.window is not None,
        "CUT": allowed is not None,
    }
    return (lengths, *strides, ends, allowed, *cuts, mask.offset, mask.window or 0), flags


def _tensors(mask: Mask) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    allowed = None if mask.allowed is None else mask.allowed.view(torch.uint8)
    return mask.key_lengths, mask.query_lengths, allowed


def _broadcast_strides(x: Tensor) -> tuple[int, ...]:
    return tuple(0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True))


@triton.jit
def interval(
    rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Gives the first key that each query may see, and the first one after it that it may not; Q and later see none."""
    low = tl.zeros_like(rows)
    high = tl.where(rows < Q, K, 0)
    if PADDED:
        length = tl.load(lengths_at + batch * lengths_b + rows * lengths_q, rows < Q, 0).to(tl.int32)
        high = tl.minimum(high, length)
    if ENDED:
        high = tl.where(rows < tl.load(ends_at + batch).to(tl.int32), high, 0)
    if CAUSAL:
        high = tl.minimum(high, rows + offset + 1)
    if WINDOWED:
        low = tl.maximum(low, rows + offset - window)
        high = tl.minimum(high, rows + offset + window + 1)
    return low, high


@triton.jit
def cut(rows, cols, batch, head, Q, K, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k):
    """Gives what a boolean mask allows in a tile, of rows and columns that broadcast to it."""
    at = allowed_at + batch * allowed_b + head * allowed_h
    return tl.load(at + rows.to(tl.int64) * allowed_q + cols * allowed_k, (rows < Q) & (cols < K), 0) != 0


@triton.jit
def first_row(key, offset, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr):
    """Gives the first query that may see this key or a later one."""
    first = 0
    if WINDOWED:
        first = tl.maximum(first, key - offset - window)
    if CAUSAL:
        first = tl.maximum(first, key - offset)
    return first


@triton.jit
def end_row(key, offset, window, Q, WINDOWED: tl.constexpr):
    """Gives the first query after the last one that may see this key or an earlier one."""
    end = Q
    if WINDOWED:
        end = tl.minimum(end, key - offset + window + 1)
    return end


@triton.jit
def sure_keys(low, high, rows, Q, K, CUT: tl.constexpr):
    """Gives the keys that all of some queries may see for certain, without a look at each pair."""
    first, end = tl.max(tl.where(rows < Q, low, 0), 0), tl.min(tl.where(rows < Q, high, K), 0)
    if CUT:
        end = first
    return first, end


@triton.jit
def sure_rows(
    col, end_col, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Gives the queries that may see all of some keys for certain, without a look at each pair."""
    first, end = 0, tl.where(end_col <= K, Q, 0)
    if PADDED:
        length = tl.load(lengths_at + batch * lengths_b).to(tl.int32)
        end = tl.where((lengths_q == 0) & (end_col <= length), end, 0)
    if ENDED:
        end = tl.minimum(end, tl.load(ends_at + batch).to(tl.int32))
    if CAUSAL:
        first = tl.maximum(first, end_col - 1 - offset)
    if WINDOWED:
        first = tl.maximum(first, end_col - 1 - window - offset)
        end = tl.minimum(end, col + window - offset + 1)
    if CUT:
        end = first
    return first, end


@triton.jit
def forbid(
    scores, rows, cols, batch, head, Q, K,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
):  # fmt: skip
    """Gives −10³⁰ to pairs that are not allowed; rows and columns broadcast to the tile."""
    low, high = interval(
        rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    allowed = (cols >= low) & (cols < high)
    if CUT:
        allowed &= cut(rows, cols, batch, head, Q, K, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k)
    return tl.where(allowed, scores, -1e30)
