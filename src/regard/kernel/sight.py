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
def whole(
    row, col, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Tells, without looking at each pair, whether all of a tile is allowed for certain."""
    high, end = K, Q
    if PADDED:
        high = tl.where(lengths_q == 0, tl.load(lengths_at + batch * lengths_b).to(tl.int32), 0)
    if ENDED:
        end = tl.load(ends_at + batch).to(tl.int32)
    if CAUSAL:
        high = tl.minimum(high, row + offset + 1)
    if WINDOWED:
        high = tl.minimum(high, row + offset + window + 1)
        high = tl.where(col >= row + ROWS - 1 + offset - window, high, 0)
    if CUT:
        high = 0
    return (row + ROWS <= end) & (col + COLS <= high)


@triton.jit
def forbid(
    scores, rows, cols, row, col, batch, head, Q, K,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Gives −10³⁰ to pairs that are not allowed, where a tile has any; rows and columns broadcast to the tile."""
    if not whole(
        row, col, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
        PADDED, ENDED, CAUSAL, WINDOWED, CUT, ROWS, COLS,
    ):  # fmt: skip
        low, high = interval(
            rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
            PADDED, ENDED, CAUSAL, WINDOWED,
        )  # fmt: skip
        allowed = (cols >= low) & (cols < high)
        if CUT:
            allowed &= cut(rows, cols, batch, head, Q, K, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k)
        scores = tl.where(allowed, scores, -1e30)
    return scores
