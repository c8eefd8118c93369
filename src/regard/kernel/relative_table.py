"""The gradient of a table by offset: the sums of the scores' gradients along diagonals.

Of tokens in a row the strip of keys within a query's reach is kept, in the inputs' own type, and added up along
diagonals. All gradients of a query's scores add up to zero, so that those of the last entry need not be looked at.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.relative_places import ahead, strip

# Parts into which the sums are cut, so that a GPU is busy; diagonals and rows that a program adds up at a time.
PARTS = 8
SHAPE = {"DIAGONALS": 128, "STEP": 16, "num_warps": 4}
HELD = 2**14  # numbers that the last program of a head has in registers


def make_room(
    table: Tensor | None, k: Tensor, Q: int, own: bool, tile: dict[str, int]
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Makes room for what the queries' kernel writes, in the form in which it takes it; of size Q · (reach + tile).

    What is not wanted is told by numbers that are never read.
    """
    if table is None:
        return (k, 0, k, k, 0, 0, 1, 0, 0), []
    (B, H, K, _), W = k.shape, table.shape[3]
    if own:
        sums = torch.zeros(B, H, table.shape[2], W, dtype=torch.float32, device=k.device)
        return (k, 0, k, sums, sums.stride(1), W if table.shape[2] > 1 else 0, 1, 0, 0), [sums]
    rows, cols = tile["ROWS"], tile["COLS"]
    n_tiles, span = triton.cdiv(Q, rows), cols * min(triton.cdiv(K, cols), (rows + W - 4) // cols + 2)
    strips = torch.empty(B * H, n_tiles * rows, span, dtype=k.dtype, device=k.device)
    lefts = torch.empty(B * H, n_tiles, dtype=torch.float32, device=k.device)
    sums = torch.zeros(B * H, PARTS, rows + cols + W, dtype=torch.float32, device=k.device)
    steps = (*sums.stride()[:1], 0, PARTS, sums.stride(1), rows + cols)
    return (strips, span, lefts, sums, *steps), [strips, lefts, sums]


def add_up(
    room: list[Tensor], table: Tensor, firsts: Tensor, H: int, K: int, own: bool, tile: dict[str, int]
) -> Tensor:
    """Gives the table's gradient."""
    if own:
        return room[0].sum_to_size(table.shape).to(table.dtype)
    strips, lefts, sums = room
    N, n_tiles, W, n_sums = *lefts.shape, table.shape[3], sums.shape[2]
    reach, extra = (W - 1) // 2, tile["ROWS"] + tile["COLS"]
    _add_diagonals[triton.cdiv(n_sums, SHAPE["DIAGONALS"]), PARTS, N](
        *(strips, sums, firsts, firsts.shape[1], n_tiles, strips.shape[2], n_sums, extra, reach, H, K),
        ROWS=tile["ROWS"],
        COLS=tile["COLS"],
        **SHAPE,
    )
    d_table = torch.empty(1, H, 1, W, dtype=table.dtype, device=table.device)
    held = triton.next_power_of_2(n_sums)
    _finish[(H,)](
        *(sums, lefts, d_table, N // H * PARTS, PARTS, n_sums, n_tiles, extra, reach),
        HELD=held,
        AT_ONCE=max(1, HELD // held),
        BLOCK=1024,
        num_warps=8,
    )
    return d_table


@triton.jit
def _add_diagonals(
    strips_at, sums_at, firsts_at, firsts_b, n_tiles, span, n_sums, extra, reach, H, K,
    ROWS: tl.constexpr, COLS: tl.constexpr, DIAGONALS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(2).to(tl.int64)
    place = tl.program_id(0) * DIAGONALS + tl.arange(0, DIAGONALS)
    apart = place - extra - reach  # of key and query
    start, in_row = ahead(firsts_at, firsts_b, n // H, 0, 0)
    strips_at += n * n_tiles * ROWS * span
    sums = tl.zeros([STEP, DIAGONALS], tl.float32)
    if in_row:
        for tile in range(tl.program_id(1), n_tiles, tl.num_programs(1)):
            lead = start + tile * ROWS
            base, end = strip(lead, reach, K, ROWS, COLS)
            for first in tl.static_range(0, ROWS, STEP):
                rows = first + tl.arange(0, STEP)
                cols = lead + rows[:, None] + apart[None, :]
                inside = (cols >= base) & (cols < end) & (apart < reach)[None, :]
                at = strips_at + tl.cast(tile, tl.int64) * ROWS * span
                sums += tl.load(at + (rows[:, None] * span + (cols - base)), inside, 0.0).to(tl.float32)
        place += (tl.program_id(1)) * n_sums
        tl.store(sums_at + n * tl.num_programs(1) * n_sums + place, tl.sum(sums, 0), apart <= reach)


@triton.jit
def _finish(
    sums_at, lefts_at, d_table_at, n_parts, parts, n_sums, n_tiles, extra, reach,
    HELD: tl.constexpr, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, H = tl.program_id(0), tl.num_programs(0)
    place = tl.arange(0, HELD)
    sums = tl.zeros([AT_ONCE, HELD], tl.float32)
    for first in range(0, n_parts, AT_ONCE):
        part = first + tl.arange(0, AT_ONCE)
        at = sums_at + ((part // parts * H + head) * parts + part % parts).to(tl.int64)[:, None] * n_sums
        sums += tl.load(at + place[None, :], (part < n_parts)[:, None] & (place < n_sums)[None, :], 0.0)
    lefts = tl.zeros([BLOCK], tl.float32)
    n_lefts = n_parts // parts * n_tiles
    for first in range(0, n_lefts, BLOCK):
        i = first + tl.arange(0, BLOCK)
        lefts += tl.load(lefts_at + (i // n_tiles * H + head) * n_tiles + i % n_tiles, i < n_lefts, 0.0)
    total = tl.where(place < extra + 2 * reach, tl.sum(sums, 0), 0.0)
    left = tl.sum(tl.where(place <= extra, total, 0.0), 0) + tl.sum(lefts, 0)
    total = tl.where(place > extra, total, 0.0)
    found = tl.where(place == extra, left, total)
    found = tl.where(place == extra + 2 * reach, -left - tl.sum(total, 0), found)
    entries = place - extra
    at = d_table_at + head * (2 * reach + 1) + entries
    tl.store(at, found.to(d_table_at.dtype.element_ty), (entries >= 0) & (entries <= 2 * reach))
