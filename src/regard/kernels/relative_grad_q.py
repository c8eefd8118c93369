"""Its gradients of queries and of the table.

Of tokens in a row the strip of keys within a query's reach is kept, in the inputs' own type, and added up along
diagonals. All gradients of a query's scores add up to zero, so that those of the last entry need not be looked at.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import interval, kept, sure_keys
from regard.kernels.relative_tiles import (
    LOG2E,
    ahead,
    end_entry,
    narrow,
    near_scores,
    other,
    places_of,
    put,
    rows_of,
    sides,
    slope_of,
    strip,
)

SHAPE = {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3}


def turn_back(
    given: tuple[Tensor | None, ...], d_q: Tensor, room: tuple[Any, ...], steps: list[int], offsets: tuple[Any, ...],
    rules: tuple[Any, ...], sizes: tuple[Any, ...], flags: dict[str, Any],
) -> None:  # fmt: skip
    """Writes them; a program owns some queries and goes through the keys that they may see.

    Writes also the product of each output and its gradient, which the keys' gradients take.
    """
    B, H, Q, _ = d_q.shape
    _turn_back[triton.cdiv(Q, SHAPE["ROWS"]), B * H](
        *(*given, d_q, *room, *steps, *offsets, *rules, *sizes), **flags, HARDWARE=d_q.is_cuda, **SHAPE
    )


@triton.jit
def _turn_back(  # noqa: PLR0915
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, found_at, out_at, d_q_at,
    strips_at, span, lefts_at, sums_at, sums_n, sums_q, copies, sums_c, extra,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t, out_b, out_h, out_t, d_q_b, d_q_h, d_q_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_places_t, k_places_t, firsts_at, firsts_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, FADES: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr, LEARNS: tl.constexpr,
    HARDWARE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    row = tl.program_id(0) * ROWS
    rows = row + tl.arange(0, ROWS)
    low, high = interval(
        rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    table_at += batch * table_b + head * table_h
    own_at = table_at + rows * table_q
    slope = slope_of(slopes_at, head, SLOPED)
    q = rows_of(q_at + batch * q_b + head * q_h, row, q_t, Q, E, ROWS, WIDTH, PLAIN)
    d_out = rows_of(d_out_at + batch * d_out_b + head * d_out_h, row, d_out_t, Q, E3, ROWS, WIDE, PLAIN)
    out = rows_of(out_at + batch * out_b + head * out_h, row, out_t, Q, E3, ROWS, WIDE, PLAIN)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(delta_at + n * Q + rows, delta, rows < Q)
    log_sum = tl.load(log_sum_at + n * Q + rows, rows < Q, float("inf"))
    k_at += batch * k_b + head * k_h
    v_at += batch * v_b + head * v_h
    sure_low, sure_end = sure_keys(low, high, rows, Q, K, CUT)
    lead, in_row = ahead(firsts_at, firsts_b, batch, row, 0)
    low_tile, left, left_end, right, right_end, others = sides(
        tl.min(low, 0), tl.max(high, 0), sure_low, tl.where(in_row, sure_end, 0),
        lead - reach + 1, lead + ROWS - 1 + reach, COLS,
    )  # fmt: skip
    d_q = tl.zeros([ROWS, WIDTH], tl.float32)
    lefts = tl.zeros([ROWS], tl.float32)
    if TABLED and not OWN:
        base, strip_end = strip(lead, reach, K, ROWS, COLS)
        places = n * tl.num_programs(0) * ROWS + row + tl.arange(0, ROWS)
        spots = strips_at + places[:, None] * span + tl.arange(0, COLS)[None, :]
        end_tile = low_tile + others * COLS + (left_end - left) + (right_end - right)
        _clear(spots, base, tl.where(in_row, strip_end, 0), low_tile, end_tile, LEARNS and not PLAIN, COLS)
        steps = tl.arange(0, COLS).to(tl.int64)[None, :] - tl.arange(0, ROWS).to(tl.int64)[:, None]
        for i in tl.range(0, tl.where(in_row, others, 0), num_stages=NEAR_STAGES):
            col = other(i, low_tile, left, left_end, right, right_end, COLS)
            cols = col + tl.arange(0, COLS)
            k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH, PLAIN)
            scores = near_scores(
                q, k, rows[:, None], cols[None, :], table_at, col - lead, steps, reach, slope, scale, batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, TABLED, OWN, SLOPED, PLAIN, PADDED, ENDED, CAUSAL, WINDOWED, CUT, EXACT, True, HARDWARE,
            )  # fmt: skip
            p = tl.exp2(scores - log_sum[:, None])
            v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, PLAIN)
            d_scores = _pass_back(p, v, d_out, delta, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
            lefts = _keep(spots + (col - base), d_scores.to(k.dtype), lefts, col, base, strip_end, LEARNS, PLAIN)
            d_q = tl.dot(d_scores.to(k.dtype), k, d_q, input_precision=EXACT)
        others = tl.where(in_row, 0, others)
    q_places = places_of(q_places_at + batch * q_places_b, q_places_t, rows, Q)
    k_places_at += batch * k_places_b
    sums_at = sums_at + n * sums_n + tl.program_id(0) % copies * sums_c + extra + rows * sums_q
    for i in tl.range(0, others, num_stages=1 if TABLED else NEAR_STAGES):
        col = other(i, low_tile, left, left_end, right, right_end, COLS)
        cols = col + tl.arange(0, COLS)
        k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH, PLAIN)
        apart = places_of(k_places_at, k_places_t, cols, K)[None, :] - q_places[:, None]
        scores = near_scores(
            q, k, rows[:, None], cols[None, :], own_at[:, None], 0, apart, reach, slope, scale, batch, head, Q, K,
            lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
            offset, window, TABLED, OWN, SLOPED, PLAIN, PADDED, ENDED, CAUSAL, WINDOWED, CUT, EXACT, False, HARDWARE,
        )  # fmt: skip
        p = tl.exp2(scores - log_sum[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, PLAIN)
        d_scores = _pass_back(p, v, d_out, delta, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        if LEARNS:
            entries = tl.minimum(tl.maximum(apart, -reach), reach) + reach
            real = (rows < Q)[:, None] & (cols < K)[None, :]
            tl.atomic_add(sums_at[:, None] + entries, d_scores, real, sem="relaxed")
        d_q = tl.dot(d_scores.to(k.dtype), k, d_q, input_precision=EXACT)
    if FADES:
        far = tl.load(found_at + tl.num_programs(1) + n)
        left, right_end = narrow(left, left_end, right, right_end, lead - far, lead + ROWS + far, COLS)
    place = tl.arange(0, ROWS).to(tl.float32) * slope
    less = log_sum - end_entry(own_at, rows < Q, scale, TABLED, OWN) + place
    d_q, lefts = _turn_far(
        q, d_out, k_at, v_at, left, left_end, lead, less, delta, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        d_q, lefts, E, E3, SLOPED, DROPS, LEARNS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    less = log_sum - end_entry(own_at + 2 * reach, rows < Q, scale, TABLED, OWN) - place
    d_q, rights = _turn_far(
        q, d_out, k_at, v_at, right, right_end, lead, less, delta, -slope, k_t, v_t, scale, rows, K, n, seed_at,
        dropout, d_q, tl.zeros_like(lefts), E, E3, SLOPED, DROPS, LEARNS and OWN, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    if LEARNS and OWN:
        tl.atomic_add(sums_at, lefts, rows < Q, sem="relaxed")
        tl.atomic_add(sums_at + 2 * reach, rights, rows < Q, sem="relaxed")
    elif LEARNS:
        tl.store(lefts_at + n * tl.num_programs(0) + tl.program_id(0), tl.sum(lefts, 0))
    put(d_q_at + batch * d_q_b + head * d_q_h, d_q * scale, rows, d_q_t, Q, E, WIDTH)


@triton.jit
def _clear(spots, base, end, low_tile, end_tile, WANTED: tl.constexpr, COLS: tl.constexpr):
    """Writes zeros to the part of the strip that is within the reach and never looked at."""
    if WANTED:
        nothing = tl.zeros(spots.shape, spots.dtype.element_ty)
        for col in range(base, tl.minimum(low_tile, end), COLS):
            tl.store(spots + (col - base), nothing)
        for col in range(tl.maximum(end_tile, base), end, COLS):
            tl.store(spots + (col - base), nothing)


@triton.jit
def _keep(spots, d_scores, lefts, col, base, end, LEARNS: tl.constexpr, PLAIN: tl.constexpr):
    """Writes a tile of the strip; one beyond it, which was looked at for its forbidden pairs, counts as far."""
    if LEARNS and PLAIN:
        tl.store(spots, d_scores)
    elif LEARNS:
        if (col >= base) & (col < end):
            tl.store(spots, d_scores)
        lefts += tl.where(col < base, tl.sum(d_scores.to(tl.float32), 1), 0.0)
    return lefts


@triton.jit
def _turn_far(
    q, d_out, k_at, v_at, begin, end, lead, less, delta, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
    d_q, sums, E: tl.constexpr, E3: tl.constexpr, SLOPED: tl.constexpr, DROPS: tl.constexpr, COUNTS: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Goes through tiles that are whole and on one side: their bias is a number for each query and each key."""
    place = tl.arange(0, COLS).to(tl.float32) * slope
    for col in range(begin, end, COLS):
        cols = col + tl.arange(0, COLS)
        k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH, True)
        scores = tl.dot(q, tl.trans(k), input_precision=EXACT) * (scale * LOG2E)
        here = less
        if SLOPED:
            here -= slope * (col - lead)
            scores += place[None, :]
        p = tl.exp2(scores - here[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, True)
        d_scores = _pass_back(p, v, d_out, delta, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        if COUNTS:
            sums += tl.sum(d_scores, 1)
        d_q = tl.dot(d_scores.to(k.dtype), k, d_q, input_precision=EXACT)
    return d_q, sums


@triton.jit
def _pass_back(
    p, v, d_out, delta, rows, cols, K, n, seed_at, dropout, DROPS: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """Gives the scores' gradients."""
    d_p = tl.dot(d_out, tl.trans(v), input_precision=EXACT)
    if DROPS:
        d_p = tl.where(kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout), d_p / (1 - dropout), 0.0)
    return p * (d_p - delta[:, None])


# Parts into which the sums are cut, so that a GPU is busy; diagonals and rows that a program adds up at a time.
PARTS = 8
TABLE_SHAPE = {"DIAGONALS": 128, "STEP": 16, "num_warps": 4}
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
    _add_diagonals[triton.cdiv(n_sums, TABLE_SHAPE["DIAGONALS"]), PARTS, N](
        *(strips, sums, firsts, firsts.shape[1], n_tiles, strips.shape[2], n_sums, extra, reach, H, K),
        ROWS=tile["ROWS"],
        COLS=tile["COLS"],
        **TABLE_SHAPE,
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
