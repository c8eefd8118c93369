"""What several kernels share: argument tuples, random numbers, tanh, row products, masks tile by tile.

Kernels take named tuples, which Triton flattens: a None in one, or a whole number that is 1 or divisible by 16, is
specialised on as if it were an argument of its own, so that `mask.lengths_ptr is not None` is known to the compiler.
At a launch tuples are never nested: Triton 3.6 loses what it knows about inner ones in loops. Inside kernels they are.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.mask import Mask

ROWS = 32  # of one program of `delta`
TRUE, FALSE = tl.constexpr(True), tl.constexpr(False)  # fields of tuples that the compiler knows


class HeadArgs(NamedTuple):
    """A (B, H, T, E) tensor whose features lie next to each other in memory."""

    ptr: Tensor
    stride_b: int
    stride_h: int
    stride_t: int


class DropoutArgs(NamedTuple):
    """The seed from which dropped weights are found again, None where none are dropped, and the rate."""

    seed_ptr: Tensor | None
    rate: float


class MaskArgs(NamedTuple):
    """The rules of a `Mask`; those that are None do not apply.

    All rules but the boolean mask allow a range of keys to each query, so tiles outside it are never visited.
    """

    lengths_ptr: Tensor | None  # keys from here on are padding
    lengths_b: int
    lengths_q: int
    ends_ptr: Tensor | None  # queries from here on are padding
    allowed_ptr: Tensor | None  # the boolean mask, as bytes
    allowed_b: int
    allowed_h: int
    allowed_q: int
    allowed_k: int
    offset: int
    window: int | None
    CAUSAL: tl.constexpr


def head_args(x: Tensor) -> HeadArgs:
    """Return x as kernels take it."""
    return HeadArgs(x, *x.stride()[:3])


def dropout_args(rate: float, device: torch.device) -> DropoutArgs:
    """Return a rate with a seed drawn by PyTorch's generator."""
    return DropoutArgs(draw_seed(device) if rate else None, rate)


def draw_seed(device: torch.device) -> Tensor:
    """Return a seed for `uniform`, drawn by PyTorch's generator on the device."""
    return torch.randint(2**31 - 1, (1,), device=device, dtype=torch.int32)


def mask_args(mask: Mask, device: torch.device) -> MaskArgs:
    """Return a mask as kernels take it, its tensors on the device."""
    bits = None if mask.allowed is None else mask.allowed.view(torch.uint8)
    lengths, ends, allowed = (None if x is None else x.to(device) for x in (mask.key_lengths, mask.query_lengths, bits))
    strides = (0, 0) if lengths is None else (lengths.stride(0), lengths.stride(1) if lengths.dim() == 2 else 0)
    b, h, q, k = (0, 0, 0, 0) if allowed is None else broadcast_strides(allowed)
    causal = TRUE if mask.causal else FALSE
    return MaskArgs(lengths, *strides, ends, allowed, b, h, q, k, mask.offset, mask.window, causal)


def broadcast_strides(x: Tensor) -> tuple[int, ...]:
    """Return the strides of x, 0 along axes of size 1."""
    return tuple(0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True))


def contiguous_rows(x: Tensor) -> Tensor:
    """Return x, or a copy of it whose last axis is contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def compute_dtype(x: Tensor) -> torch.dtype:
    """Return the type in which products with x are made: autocast's where that is on."""
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


def dot_precision(dtype: torch.dtype) -> str:
    """Return `tl.dot`'s `input_precision`: float32 is not rounded to TF32."""
    return "ieee" if dtype == torch.float32 else "tf32"


def block_size(n: int) -> int:
    """Return the power of two that holds n numbers and that `tl.dot` takes."""
    return max(16, triton.next_power_of_2(n))


def delta(out: Tensor, d_out: Tensor) -> Tensor:
    """Return `Σ out · d_out` over the last of four axes, (B · H, Q) in float32; features must be contiguous."""
    B, H, Q, E = out.shape
    products = torch.empty(B * H, Q, dtype=torch.float32, device=out.device)
    _delta_kernel[triton.cdiv(Q, ROWS), B * H](
        *(head_args(out), head_args(d_out), products, H, Q, E),
        BLOCK_E=triton.next_power_of_2(E),
        ROWS=ROWS,
        num_warps=4,
    )
    return products


@triton.jit
def _delta_kernel(out, d_out, products_ptr, H, Q, E, ROWS: tl.constexpr, BLOCK_E: tl.constexpr):
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    rows, cols = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK_E)
    inside = (rows < Q)[:, None] & (cols < E)[None, :]
    row = rows.to(tl.int64)[:, None]
    x = tl.load(head_ptr(out, batch, head) + row * out.stride_t + cols[None, :], inside, 0.0)
    d_x = tl.load(head_ptr(d_out, batch, head) + row * d_out.stride_t + cols[None, :], inside, 0.0)
    products = tl.sum(x.to(tl.float32) * d_x.to(tl.float32), 1)
    tl.store(products_ptr + tl.program_id(1).to(tl.int64) * Q + rows, products, rows < Q)


@triton.jit
def head_ptr(x, batch, head):
    """Return where a head's first vector begins."""
    return x.ptr + batch * x.stride_b + head * x.stride_h


@triton.jit
def uniform(seed, index):
    """Return a number in [0, 1) for each index: a 32-bit mixer of two rounds, a fifth of the work of Philox."""
    x = (index.to(tl.uint32) * 0x9E3779B1) ^ seed.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16)
    return (x >> 8).to(tl.float32) * (1.0 / 16777216)


@triton.jit
def drop_out(x, seed_ptr, index, rate):
    """Return dropout of x: the same numbers are dropped each time."""
    return tl.where(uniform(tl.load(seed_ptr), index) >= rate, x / (1 - rate), 0.0)


@triton.jit
def dropout_mask(dropout, n, pairs):
    """Return which numbered pairs of the n-th head are kept: the same ones each time."""
    return uniform(tl.load(dropout.seed_ptr).to(tl.uint32) + n.to(tl.uint32) * 0x85EBCA6B, pairs) >= dropout.rate


@triton.jit
def tanh(x, HARDWARE: tl.constexpr):
    """Return tanh; the instruction is wrong by 5e-4 of the result at most, the formula by rounding alone.

    A multiprocessor does 16 of the instruction a cycle. Its packed forms for half precision are two instructions each
    in machine code, so they are no faster.
    """
    if HARDWARE:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    power = tl.exp(-2.0 * tl.abs(x))  # the exponent is never above 0, so this cannot overflow
    size = (1.0 - power) / (1.0 + power)
    return tl.where(x < 0.0, -size, size)


@triton.jit
def key_range(rows, batch, Q, K, mask):
    """Return the first key that each query may see, and the end of its range; it is empty from query Q on."""
    low = tl.zeros_like(rows)
    high = tl.where(rows < Q, K, 0)
    if mask.lengths_ptr is not None:
        lengths_ptr = mask.lengths_ptr + batch * mask.lengths_b
        length = tl.load(lengths_ptr + rows * mask.lengths_q, rows < Q, 0).to(tl.int32)
        high = tl.minimum(high, length)
    if mask.ends_ptr is not None:
        high = tl.where(rows < tl.load(mask.ends_ptr + batch).to(tl.int32), high, 0)
    if mask.CAUSAL:
        high = tl.minimum(high, rows + mask.offset + 1)
    if mask.window is not None:
        low = tl.maximum(low, rows + mask.offset - mask.window)
        high = tl.minimum(high, rows + mask.offset + mask.window + 1)
    return low, high


@triton.jit
def allowed_pairs(rows, cols, low, high, batch, head, Q, K, mask):
    """Return which pairs of a tile are allowed, from the queries' ranges of keys; all but Q and K broadcast to it."""
    allowed = (cols >= low) & (cols < high)
    if mask.allowed_ptr is not None:
        ptr = mask.allowed_ptr + batch * mask.allowed_b + head * mask.allowed_h
        ptr = ptr + rows.to(tl.int64) * mask.allowed_q + cols * mask.allowed_k
        allowed &= tl.load(ptr, (rows < Q) & (cols < K), 0) != 0
    return allowed


@triton.jit
def first_query(key, mask):
    """Return the first query that may see this key or a later one."""
    first = 0
    if mask.window is not None:
        first = tl.maximum(first, key - mask.offset - mask.window)
    if mask.CAUSAL:
        first = tl.maximum(first, key - mask.offset)
    return first


@triton.jit
def end_query(key, Q, mask):
    """Return the first query after the last one that may see this key or an earlier one."""
    end = Q
    if mask.window is not None:
        end = tl.minimum(end, key - mask.offset + mask.window + 1)
    return end


@triton.jit
def unmasked_keys(low, high, rows, Q, K, mask):
    """Return a range of keys that all of some queries may see for certain, without looking at single pairs."""
    first, end = tl.max(tl.where(rows < Q, low, 0), 0), tl.min(tl.where(rows < Q, high, K), 0)
    if mask.allowed_ptr is not None:
        end = first
    return first, end


@triton.jit
def unmasked_queries(col, end_col, batch, Q, K, mask):
    """Return a range of queries that may see all of some keys for certain, without looking at single pairs."""
    first, end = 0, tl.where(end_col <= K, Q, 0)
    if mask.lengths_ptr is not None:
        length = tl.load(mask.lengths_ptr + batch * mask.lengths_b).to(tl.int32)
        end = tl.where((mask.lengths_q == 0) & (end_col <= length), end, 0)
    if mask.ends_ptr is not None:
        end = tl.minimum(end, tl.load(mask.ends_ptr + batch).to(tl.int32))
    if mask.CAUSAL:
        first = tl.maximum(first, end_col - 1 - mask.offset)
    if mask.window is not None:
        first = tl.maximum(first, end_col - 1 - mask.window - mask.offset)
        end = tl.minimum(end, col + mask.window - mask.offset + 1)
    if mask.allowed_ptr is not None:
        end = first
    return first, end


@triton.jit
def apply_mask(scores, rows, cols, batch, head, Q, K, mask):
    """Return scores with −10³⁰ for pairs that are not allowed; rows and columns broadcast to the tile."""
    low, high = key_range(rows, batch, Q, K, mask)
    return tl.where(allowed_pairs(rows, cols, low, high, batch, head, Q, K, mask), scores, -1e30)
