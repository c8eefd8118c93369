"""Which keys a query may see, asked inside a kernel: an interval of keys, cut further by any boolean mask."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.mask import Mask


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
