"""What kernels ask about places: which tiles lie wholly on one side, entries of a table, rows of a matrix."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import forbid

LOG2E = tl.constexpr(1.4426950408889634)  # powers are of two inside the kernels
NOWHERE = tl.constexpr(-1073741824)


def strides(*tensors: Tensor) -> list[int]:
    """Gives the steps between sequences, heads and tokens."""
    return [stride for x in tensors for stride in x.stride()[:3]]


def survey(q_positions: Tensor, k_positions: Tensor) -> Tensor:
    """Gives the places of first queries and first keys, (2, B), or −2³⁰ where they do not stand in a row."""
    B = max(len(q_positions), len(k_positions))
    firsts = torch.empty(2, B, dtype=torch.int32, device=q_positions.device)
    q_b, k_b = (0 if len(x) == 1 else x.stride(0) for x in (q_positions, k_positions))
    sizes = (q_b, k_b, q_positions.stride(1), k_positions.stride(1), q_positions.shape[1], k_positions.shape[1])
    _survey[B, 2](q_positions, k_positions, firsts, *sizes, BLOCK=1024, num_warps=4)
    return firsts


@triton.jit
def _survey(q_at, k_at, firsts_at, q_b, k_b, q_t, k_t, Q, K, BLOCK: tl.constexpr):
    batch, queries = tl.program_id(0), tl.program_id(1) == 0
    T = tl.where(queries, Q, K)
    step = tl.where(queries, q_t, k_t)
    at = q_at + batch * q_b
    if not queries:
        at = k_at + batch * k_b
    first = tl.load(at).to(tl.int32)
    off = tl.zeros([BLOCK], tl.int32)
    for begin in range(0, T, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        places = tl.load(at + i * step, i < T, 0).to(tl.int32)
        off = tl.maximum(off, tl.where(i < T, tl.abs(places - first - i), 0))
    found = tl.where((tl.max(off, 0) == 0) & (first >= 0), first, NOWHERE)
    tl.store(firsts_at + tl.program_id(1) * tl.num_programs(0) + batch, found)


@triton.jit
def ahead(firsts_at, firsts_b, batch, row, col):
    """Gives how far query `row` stands ahead of key `col`, and whether all queries, and all keys, stand in a row."""
    at = firsts_at + tl.where(firsts_b == 1, 0, batch)
    q_first, k_first = tl.load(at), tl.load(at + firsts_b)
    in_row = (q_first >= 0) & (k_first >= 0)
    return tl.where(in_row, q_first + row - k_first - col, 0), in_row


@triton.jit
def sides(low, end, sure_low, sure_end, near_low, near_end, STEP: tl.constexpr):
    """Splits the tiles of `low … end` into those that need no look at single pairs, and all others.

    Tiles within `sure_low … sure_end` have no forbidden pair; those before `near_low` and from `near_end` on lie
    wholly on one side, beyond a table's reach. Gives the beginning of all, both ends of the tiles before and of those
    behind, and the number of the others: first come those before the ones before, then the near ones, then the rest.
    """
    low = low // STEP * STEP
    end = tl.maximum(tl.cdiv(end, STEP) * STEP, low)
    left = tl.minimum(tl.maximum(tl.cdiv(sure_low, STEP) * STEP, low), end)
    left_end = tl.minimum(tl.maximum(tl.minimum(sure_end, near_low) // STEP * STEP, left), end)
    right = tl.minimum(tl.maximum(tl.cdiv(tl.maximum(sure_low, near_end), STEP) * STEP, left_end), end)
    right_end = tl.minimum(tl.maximum(sure_end // STEP * STEP, right), end)
    others = (end - low - (left_end - left) - (right_end - right)) // STEP
    return low, left, left_end, right, right_end, others


@triton.jit
def other(i, low, left, left_end, right, right_end, STEP: tl.constexpr):
    """Gives where the i-th of the other tiles begins."""
    at = low + i * STEP
    at = tl.where(at >= left, at + left_end - left, at)
    return tl.where(at >= right, at + right_end - right, at)


@triton.jit
def strip(lead, reach, K, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Gives where the tiles of keys begin that lie within the reach of some queries, and where they end."""
    return tl.maximum((lead - reach + 1) // COLS * COLS, 0), tl.minimum(lead + ROWS - 1 + reach, K)


@triton.jit
def narrow(left, left_end, right, right_end, low, end, STEP: tl.constexpr):
    """Leaves out the tiles on both sides that lie wholly before `low` or behind `end`."""
    left = tl.minimum(tl.maximum(left, low // STEP * STEP), left_end)
    return left, tl.maximum(tl.minimum(right_end, tl.cdiv(end, STEP) * STEP), right)


@triton.jit
def slope_of(at, head, SLOPED: tl.constexpr):
    """Gives a head's slope as a power of two."""
    slope = 0.0
    if SLOPED:
        slope = tl.load(at + head) * LOG2E
    return slope


@triton.jit
def end_entry(at, real, scale, TABLED: tl.constexpr, OWN: tl.constexpr):
    """Gives the entry that far keys take, for each query, as a power of two."""
    found = tl.zeros_like(real).to(tl.float32)
    if TABLED:
        found = tl.load(at, real, 0.0) * (LOG2E if OWN else scale * LOG2E)
    return found


@triton.jit
def rows_of(at, first, step, n, width: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, WHOLE: tl.constexpr):
    """Gives some rows of a matrix, zeros outside; WHOLE says that all are inside."""
    rows, cols = tl.arange(0, ROWS), tl.arange(0, COLS)
    at += tl.cast(first, tl.int64) * step
    place = at + rows[:, None] * step + cols[None, :]
    if not WHOLE:
        return tl.load(place, (first + rows < n)[:, None] & (cols < width)[None, :], 0.0)
    if width == COLS:
        return tl.load(place)
    return tl.load(place, (cols < width)[None, :], 0.0)


@triton.jit
def places_of(at, step, tokens, n):
    """Gives where tokens stand; those outside stand at 0."""
    return tl.load(at + tokens * step, tokens < n, 0).to(tl.int32)


@triton.jit
def near_scores(
    a, b, rows, cols, table_at, first, apart, reach, slope, scale, batch, head, Q, K,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    EXACT: tl.constexpr, IN_ROW: tl.constexpr, HARDWARE: tl.constexpr,
):  # fmt: skip
    """Gives a tile of scores as powers of two, either way round; what is of queries or of keys broadcasts to it.

    Keys stand `first + apart` behind queries. The product starts from the bias: added to the product it would put the
    whole softmax into the order in which the table was loaded.
    """
    # Written as factors, which are made once: a division would be made for each pair.
    inverse = 1.0 / scale
    far = first + apart
    if TABLED and IN_ROW:
        bias = diagonals(table_at, first, apart, reach, HARDWARE)
    elif TABLED:
        entries = tl.minimum(tl.maximum(far, -reach), reach) + reach
        bias = tl.load(table_at + entries, rows < Q, 0.0) * (inverse if OWN else 1.0)
    else:
        bias = tl.zeros_like(far).to(tl.float32)
    if SLOPED:
        bias -= slope * inverse / LOG2E * tl.abs(far).to(tl.float32)
    scores = tl.dot(a, tl.trans(b), bias, input_precision=EXACT) * (scale * LOG2E)
    if not PLAIN:
        scores = forbid(
            scores, rows, cols, batch, head, Q, K,
            lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
            offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT,
        )  # fmt: skip
    return scores


@triton.jit
def diagonals(table_at, first, apart, reach, HARDWARE: tl.constexpr):
    """Gives a tile of entries for tokens in a row; what lies beyond the ends of a table is filled up with the ends.

    They are loaded by an instruction that keeps the order of a product: one for each pair and no more, as without a
    clamp a thread's places differ by numbers that the compiler knows.
    """
    side: tl.constexpr = apart.shape[0] + apart.shape[1]
    at = table_at + (tl.minimum(tl.maximum(first, -reach - side), reach + side) + reach)
    if HARDWARE:
        places = (at + apart).to(tl.int64, bitcast=True)
        load: tl.constexpr = "ld.global.nc.f32 $0, [$1];"
        return tl.inline_asm_elementwise(load, "=f,l", [places], dtype=tl.float32, is_pure=True, pack=1)
    return tl.load(at + apart)


@triton.jit
def put(at, x, rows, step, n, width: tl.constexpr, COLS: tl.constexpr):
    """Writes rows of a matrix."""
    cols = tl.arange(0, COLS)
    inside = (rows < n)[:, None] & (cols < width)[None, :]
    tl.store(at + rows.to(tl.int64)[:, None] * step + cols[None, :], x.to(at.dtype.element_ty), inside)
