"""What kernels ask about places: offsets in a tile, entries of a table, rows of a matrix."""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)  # powers are of two inside the kernels
BLOCK = 64  # places that are summed up together; tiles hold one or two such blocks


def strides(*tensors: Tensor) -> list[int]:
    """Gives the steps between sequences, heads and tokens."""
    return [stride for x in tensors for stride in x.stride()[:3]]


def survey(positions: Tensor) -> tuple[Tensor, Tensor]:
    """Gives the places, going on as in a row until a last block is full, and what is known about each block of them.

    That is the lowest, the highest, and the first if they stand in a row, else −2³⁰.
    """
    B, T = positions.shape
    n = 2 * triton.cdiv(T, 2 * BLOCK)
    places = torch.empty(B, n * BLOCK, dtype=torch.int32, device=positions.device)
    found = torch.empty(B, n, 3, dtype=torch.int32, device=positions.device)
    _survey[(n, B)](positions.contiguous(), places, found, T, n, BLOCK=BLOCK, num_warps=1)
    return places, found


@triton.jit
def _survey(positions_at, places_at, found_at, T, n, BLOCK: tl.constexpr):
    block, batch = tl.program_id(0), tl.program_id(1)
    at = block * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(positions_at + batch * T + tl.minimum(at, T - 1)).to(tl.int32) + tl.maximum(at - (T - 1), 0)
    tl.store(places_at + batch * n * BLOCK + at, places)
    first = tl.sum(tl.where(tl.arange(0, BLOCK) == 0, places, 0), 0)
    off = tl.max(tl.abs(places - first - tl.arange(0, BLOCK)), 0)
    found_at += (batch * n + block) * 3
    tl.store(found_at, tl.min(places, 0))
    tl.store(found_at + 1, tl.max(places, 0))
    tl.store(found_at + 2, tl.where(off == 0, first, -1073741824))


@triton.jit
def span(found_at, first, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    """Gives the lowest and the highest place of a tile's side, and the first if they stand in a row, else below 0."""
    at = found_at + first // BLOCK * 3
    low, high, start = tl.load(at), tl.load(at + 1), tl.load(at + 2)
    if SIZE > BLOCK:
        low, high = tl.minimum(low, tl.load(at + 3)), tl.maximum(high, tl.load(at + 4))
        start = tl.where(tl.load(at + 5) == start + BLOCK, start, -1073741824)
    return low, high, start


@triton.jit
def far(k_found_at, q_found_at, col, row, reach, BLOCK: tl.constexpr):
    """Tells whether all of a tile is beyond a table's reach, before or behind, as if tiles were two blocks square.

    So kernels with tiles of different shapes agree on which of them sums up what.
    """
    side: tl.constexpr = 2 * BLOCK
    k_low, k_high, _ = span(k_found_at, col // side * side, BLOCK, side)
    q_low, q_high, _ = span(q_found_at, row // side * side, BLOCK, side)
    return k_high - q_low <= -reach, k_low - q_high >= reach


@triton.jit
def entry(k_places, q_places, REACH):
    """Gives which entry of the table each pair takes."""
    return tl.minimum(tl.maximum(k_places - q_places, -REACH), REACH) + REACH


@triton.jit
def end_entry(at, real, TABLED: tl.constexpr):
    """Gives the entry that far keys take, for each query."""
    found = tl.zeros_like(real).to(tl.float32)
    if TABLED:
        found = tl.load(at, real, 0.0)
    return found


@triton.jit
def rows_of(at, first, step, n, width: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Gives some rows of a matrix, zeros outside."""
    rows, cols = first + tl.arange(0, ROWS), tl.arange(0, COLS)
    inside = (rows < n)[:, None] & (cols < width)[None, :]
    return tl.load(at + rows.to(tl.int64)[:, None] * step + cols[None, :], inside, 0.0)


@triton.jit
def from_table(
    left, right, entries_at, real, k_places, q_places, before, behind, reach, TABLED: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Gives the table's part of a tile; what belongs to rows and what belongs to columns broadcasts to it.

    `before` and `behind` tell whether all keys are beyond the table's reach. A product starts from this tile: added to
    a product it would put the whole softmax into the order in which it was loaded.
    """
    start = tl.zeros([ROWS, COLS], tl.float32)
    if TABLED:
        start += tl.where(before, left, tl.where(behind, right, 0.0))
        if not (before | behind):
            start = tl.load(entries_at + entry(k_places, q_places, reach), real, 0.0)
    return start


@triton.jit
def put(at, x, rows, step, n, width: tl.constexpr, COLS: tl.constexpr):
    """Writes rows of a matrix."""
    cols = tl.arange(0, COLS)
    inside = (rows < n)[:, None] & (cols < width)[None, :]
    tl.store(at + rows.to(tl.int64)[:, None] * step + cols[None, :], x.to(at.dtype.element_ty), inside)
