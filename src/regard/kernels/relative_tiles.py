"""What the three relative kernels share: their arguments, which tiles need no look at single pairs, loads, scores.

Keys and queries are consecutive where their positions are first, first + 1, …; a tile is one-sided where all its keys
stand on the same side of all its queries, beyond the reach of the table.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import MaskArgs, apply_mask, broadcast_strides, head_ptr, key_range, unmasked_keys

LOG2E = tl.constexpr(1.4426950408889634)  # powers are of two inside the kernels
NOWHERE = tl.constexpr(-1073741824)


class PositionArgs(NamedTuple):
    """Positions of queries or keys, (#B, T)."""

    ptr: Tensor
    stride_b: int
    stride_t: int


class BiasArgs(NamedTuple):
    """A bias by offset: positions, a table of entries (#B, H, #Q, W) up to its reach, and slopes (H)."""

    q_ptr: Tensor
    q_b: int
    q_t: int
    k_ptr: Tensor
    k_b: int
    k_t: int
    firsts_ptr: Tensor  # of `first_positions`
    firsts_b: int
    table_ptr: Tensor  # never read where there is no table
    table_b: int
    table_h: int
    table_q: int
    slopes_ptr: Tensor | None
    reach: int


class CallArgs(NamedTuple):
    """Dropout as in `DropoutArgs`, the longest keys' norms where far keys are skipped, sizes, and the scale."""

    seed_ptr: Tensor | None
    rate: float
    far_ptr: Tensor | None
    H: int
    Q: int
    K: int
    scale: float


class RelativeArgs(NamedTuple):
    """What a call is about, the same in the forward and the backward pass."""

    bias: BiasArgs
    mask: MaskArgs
    call: CallArgs


class Constants(NamedTuple):
    """What the kernels of a call are compiled for."""

    HAS_TABLE: bool
    PER_QUERY: bool  # each query has a table of its own
    HAS_SLOPE: bool
    SKIP_FAR: bool  # a slope alone takes far keys too far down for any weight
    NO_BOUNDS_CHECK: bool  # no mask, and tiles of every shape end where queries and keys do
    HARDWARE: bool  # the table is loaded by a GPU's own instruction
    LEARNS: bool  # the table's gradient is wanted
    PRECISION: str
    E: int  # width of queries and keys, and the power of two that holds it
    BLOCK_E: int
    E3: int  # of values
    BLOCK_V: int


class HeadIndex(NamedTuple):
    """Which head a program works on: its number among all, its sequence, and its number there."""

    n: tl.tensor
    batch: tl.tensor
    head: tl.tensor


class Vectors(NamedTuple):
    """One head's queries, keys or values."""

    ptr: tl.tensor
    step: tl.tensor


class KeyRange(NamedTuple):
    """Which keys each query may see but for a boolean mask: from `low`, up to and without `high`."""

    low: tl.tensor
    high: tl.tensor


class TileRanges(NamedTuple):
    """Where tiles begin and end that are one-sided and unmasked, on the left and on the right, and how many others.

    The others come first before the left ones, then between both, then after the right ones.
    """

    low: tl.tensor
    left: tl.tensor
    left_end: tl.tensor
    right: tl.tensor
    right_end: tl.tensor
    n_near: tl.tensor


def first_positions(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Return the positions of first queries and first keys, (2, B), or −2³⁰ where they are not consecutive."""
    B = max(len(q_positions), len(k_positions))
    firsts = torch.empty(2, B, dtype=torch.int32, device=q_positions.device)
    q, k = (position_args(x) for x in (q_positions, k_positions))
    _first_positions_kernel[B, 2](*(q, k, firsts, q_positions.shape[1], k_positions.shape[1]), BLOCK=1024, num_warps=4)
    return firsts


def position_args(x: Tensor) -> PositionArgs:
    """Return positions as kernels take them."""
    return PositionArgs(x, *broadcast_strides(x))


@triton.jit
def _first_positions_kernel(q, k, firsts_ptr, Q, K, BLOCK: tl.constexpr):
    batch, queries = tl.program_id(0), tl.program_id(1) == 0
    T = tl.where(queries, Q, K)
    step = tl.where(queries, q.stride_t, k.stride_t)
    ptr = q.ptr + batch * q.stride_b
    if not queries:
        ptr = k.ptr + batch * k.stride_b
    first = tl.load(ptr).to(tl.int32)
    off = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, T, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        positions = tl.load(ptr + i * step, i < T, 0).to(tl.int32)
        off = tl.maximum(off, tl.where(i < T, tl.abs(positions - first - i), 0))
    first = tl.where((tl.max(off, 0) == 0) & (first >= 0), first, NOWHERE)
    tl.store(firsts_ptr + tl.program_id(1) * tl.num_programs(0) + batch, first)


@triton.jit
def head_index(H):
    """Return which head this program works on."""
    n = tl.program_id(1).to(tl.int64)
    return HeadIndex(n, n // H, tl.program_id(1) % H)


@triton.jit
def head_vectors(x, at):
    """Return a head's vectors of a (B, H, T, E) tensor."""
    return Vectors(head_ptr(x, at.batch, at.head), x.stride_t)


@triton.jit
def load_rows(x, first, n, width: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WHOLE: tl.constexpr):
    """Return some of a head's vectors, zeros outside; WHOLE says that all are inside."""
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    ptr = x.ptr + tl.cast(first, tl.int64) * x.step + rows[:, None] * x.step + cols[None, :]
    if not WHOLE:
        return tl.load(ptr, (first + rows < n)[:, None] & (cols < width)[None, :], 0.0)
    if width == COLS:
        return tl.load(ptr)
    return tl.load(ptr, (cols < width)[None, :], 0.0)


@triton.jit
def store_rows(x, values, rows, n, width: tl.constexpr, COLS: tl.constexpr):
    """Write some of a head's vectors."""
    cols = tl.arange(0, COLS)
    inside = (rows < n)[:, None] & (cols < width)[None, :]
    ptr = x.ptr + rows.to(tl.int64)[:, None] * x.step + cols[None, :]
    tl.store(ptr, values.to(x.ptr.dtype.element_ty), inside)


@triton.jit
def load_positions(ptr, step, tokens, n):
    """Return tokens' positions, 0 outside."""
    return tl.load(ptr + tokens * step, tokens < n, 0).to(tl.int32)


@triton.jit
def lead_of(bias, batch, row, col):
    """Return how far query `row` is ahead of key `col`, and whether queries and keys are consecutive."""
    ptr = bias.firsts_ptr + tl.where(bias.firsts_b == 1, 0, batch)
    q_first, k_first = tl.load(ptr), tl.load(ptr + bias.firsts_b)
    consecutive = (q_first >= 0) & (k_first >= 0)
    return tl.where(consecutive, q_first + row - k_first - col, 0), consecutive


@triton.jit
def split_tiles(low, end, unmasked_low, unmasked_end, near_low, near_end, STEP: tl.constexpr):
    """Return the tiles of `low … end`, those that need no look at single pairs apart from all others.

    Tiles within `unmasked_low … unmasked_end` have no forbidden pair; those before `near_low` and from `near_end` on
    are one-sided.
    """
    low = low // STEP * STEP
    end = tl.maximum(tl.cdiv(end, STEP) * STEP, low)
    left = tl.minimum(tl.maximum(tl.cdiv(unmasked_low, STEP) * STEP, low), end)
    left_end = tl.minimum(tl.maximum(tl.minimum(unmasked_end, near_low) // STEP * STEP, left), end)
    right = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(unmasked_low, near_end), STEP) * STEP, left_end), end)
    right_end = tl.minimum(tl.maximum(unmasked_end // STEP * STEP, right), end)
    n_near = (end - low - (left_end - left) - (right_end - right)) // STEP
    return TileRanges(low, left, left_end, right, right_end, n_near)


@triton.jit
def query_rows(at, args, ROWS: tl.constexpr):
    """Return the first of a program's queries, all of them, and the keys that they may see."""
    row = tl.program_id(0) * ROWS
    rows = row + tl.arange(0, ROWS)
    low, high = key_range(rows, at.batch, args.call.Q, args.call.K, args.mask)
    return row, rows, KeyRange(low, high)


@triton.jit
def query_tiles(row, visible, at, args, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the tiles of keys that some queries see; the first query's lead; whether tokens are consecutive."""
    reach, rows, low, high = args.bias.reach, row + tl.arange(0, ROWS), visible.low, visible.high
    unmasked_low, unmasked_end = unmasked_keys(low, high, rows, args.call.Q, args.call.K, args.mask)
    lead, consecutive = lead_of(args.bias, at.batch, row, 0)
    tiles = split_tiles(
        tl.min(low, 0), tl.max(high, 0), unmasked_low, tl.where(consecutive, unmasked_end, 0),
        lead - reach + 1, lead + ROWS - 1 + reach, COLS,
    )  # fmt: skip
    return tiles, lead, consecutive


@triton.jit
def query_bias(rows, at, bias):
    """Return where a head's table begins, where each query's does, and the head's slope."""
    table_ptr = bias.table_ptr + at.batch * bias.table_b + at.head * bias.table_h
    return table_ptr, table_ptr + rows * bias.table_q, load_slope(bias, at.head)


@triton.jit
def near_tile(i, tiles, STEP: tl.constexpr):
    """Return where the i-th of the other tiles begins."""
    at = tiles.low + i * STEP
    at = tl.where(at >= tiles.left, at + tiles.left_end - tiles.left, at)
    return tl.where(at >= tiles.right, at + tiles.right_end - tiles.right, at)


@triton.jit
def skip_far(tiles, low, end, STEP: tl.constexpr):
    """Return the tiles without the one-sided ones that lie wholly before `low` or after `end`."""
    left = tl.minimum(tl.maximum(tiles.left, low // STEP * STEP), tiles.left_end)
    right_end = tl.maximum(tl.minimum(tiles.right_end, tl.cdiv(end, STEP) * STEP), tiles.right)
    return TileRanges(tiles.low, left, tiles.left_end, tiles.right, right_end, tiles.n_near)


@triton.jit
def within_reach(lead, reach, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return where the tiles of keys begin that lie within the reach of some queries, and where they end."""
    return tl.maximum((lead - reach + 1) // COLS * COLS, 0), tl.minimum(lead + ROWS - 1 + reach, K)


@triton.jit
def diagonal_steps(ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the offsets of a tile's pairs (queries by keys) of consecutive tokens, from that of the first pair."""
    return tl.arange(0, COLS).to(tl.int64)[None, :] - tl.arange(0, ROWS).to(tl.int64)[:, None]


@triton.jit
def load_slope(bias, head):
    """Return a head's slope for powers of two, 0 where there is none."""
    slope = 0.0
    if bias.slopes_ptr is not None:
        slope = tl.load(bias.slopes_ptr + head) * LOG2E
    return slope


@triton.jit
def end_entry(ptr, real, scale, C: tl.constexpr):
    """Return the entry that far keys take, for each query, for powers of two."""
    entry = tl.zeros_like(real).to(tl.float32)
    if C.HAS_TABLE:
        entry = tl.load(ptr, real, 0.0) * (LOG2E if C.PER_QUERY else scale * LOG2E)
    return entry


@triton.jit
def near_scores(
    a, b, rows, cols, table_ptr, first, apart, slope, at, args, C: tl.constexpr, CONSECUTIVE: tl.constexpr
):  # fmt: skip
    """Return a tile of scores as powers of two, either way round; what is of queries or of keys broadcasts to it.

    Keys stand `first + apart` behind queries. The product starts from the bias: added to the product it would put the
    whole softmax into the layout in which the table was loaded.
    """
    reach = args.bias.reach
    # Written as factors, which are computed once: a division would be made for each pair.
    inverse = 1.0 / args.call.scale
    offset = first + apart
    if C.HAS_TABLE and CONSECUTIVE:
        bias = _diagonals(table_ptr, first, apart, reach, C.HARDWARE)
    elif C.HAS_TABLE:
        entries = tl.minimum(tl.maximum(offset, -reach), reach) + reach
        bias = tl.load(table_ptr + entries, rows < args.call.Q, 0.0) * (inverse if C.PER_QUERY else 1.0)
    else:
        bias = tl.zeros_like(offset).to(tl.float32)
    if C.HAS_SLOPE:
        bias -= slope * inverse / LOG2E * tl.abs(offset).to(tl.float32)
    scores = tl.dot(a, tl.trans(b), bias, input_precision=C.PRECISION) * (args.call.scale * LOG2E)
    if not C.NO_BOUNDS_CHECK:
        scores = apply_mask(scores, rows, cols, at.batch, at.head, args.call.Q, args.call.K, args.mask)
    return scores


@triton.jit
def _diagonals(table_ptr, first, apart, reach, HARDWARE: tl.constexpr):
    """Return a tile of entries for consecutive tokens; a table is padded in memory with its end entries.

    They are loaded by an instruction that keeps the layout of a product: one for each pair and no more, as without a
    clamp a thread's addresses differ by numbers that the compiler knows.
    """
    side: tl.constexpr = apart.shape[0] + apart.shape[1]
    ptr = table_ptr + (tl.minimum(tl.maximum(first, -reach - side), reach + side) + reach)
    if HARDWARE:
        addresses = (ptr + apart).to(tl.int64, bitcast=True)
        load: tl.constexpr = "ld.global.nc.f32 $0, [$1];"
        return tl.inline_asm_elementwise(load, "=f,l", [addresses], dtype=tl.float32, is_pure=True, pack=1)
    return tl.load(ptr + apart)
