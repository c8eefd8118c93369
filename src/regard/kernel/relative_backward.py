"""The gradients of dot-product attention with a bias by offset.

A program owns some keys and goes through the queries that may see them. The table's gradient is the sum of the scores'
gradients along diagonals: of whole tiles beyond its reach, and near it of columns, once each row is turned.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.delta import delta
from regard.kernel.keep import kept
from regard.kernel.relative_places import (
    LOG2E,
    ahead,
    by_pair,
    end_entry,
    entry,
    other,
    places_of,
    put,
    rows_of,
    sides,
    strides,
    whole_rows,
)
from regard.kernel.relative_queries import turn_back
from regard.kernel.sight import end_row, first_row, forbid, sure_rows

SHAPE = {"ROWS": 64, "COLS": 128, "NEAR_STAGES": 1, "num_warps": 8, "num_stages": 2}

# Numbers in which the sums of a table's gradient are kept apart, so that few programs add to the same one.
APART = 2**20


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, wanted: bool, offsets: tuple[Any, ...], rules: tuple[Any, ...],
    flags: dict[str, Any], scale: float, dropout: float, passes: int,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gives the gradients of queries, keys, values, and of the table if it is wanted."""
    q, k, v, table, out, log_sum, seed = saved
    (B, H, Q, E), (K, E3) = q.shape, v.shape[2:]
    d_out = d_out.to(out.dtype)
    d_out = d_out if d_out.stride(3) == 1 else d_out.contiguous()
    d_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device) if passes == 1 else torch.empty_like(q)
    d_k, d_v = torch.empty_like(k), torch.empty_like(v)
    d_table, steps, flags = make_room(table if wanted else None, B, flags)
    sizes = (H, Q, K, E, E3, scale, dropout)
    given = (q, k, v, d_out, log_sum, delta(out, d_out), seed)
    own = (d_q, d_k, d_v, log_sum if d_table is None else d_table, *steps)
    _look_back[triton.cdiv(K, SHAPE["COLS"]), B * H](
        *(*given, *own, *strides(q, k, v, d_out, d_q, d_k, d_v), *offsets, *rules, *sizes),
        **flags,
        ONCE=passes == 1,
        **SHAPE,
    )
    if passes == 2:
        turn_back(given, d_q, strides(q, k, v, d_out, d_q), offsets, rules, sizes, flags)
    if d_table is not None and table is not None:
        d_table = d_table.sum_to_size(table.shape)
    return d_q.to(q.dtype), d_k, d_v, d_table


def make_room(table: Tensor | None, B: int, flags: dict[str, Any]) -> tuple[Tensor | None, tuple[int, ...], dict]:
    """Makes zeros for a table's gradient: of each query its own, or copies of all queries', which many programs add to.

    Gives with it the steps between copies (or sequences), heads and queries, and what the kernels are told.
    """
    flags = {**flags, "LEARNS": table is not None}
    if table is None:
        return None, (0, 0, 0, 1), flags
    _, H, Q, W = table.shape
    copies = B if flags["OWN"] else max(1, min(64, APART // (H * W)))
    room = torch.zeros(copies, H, Q, W, dtype=torch.float32, device=table.device)
    return room, (room.stride(0), room.stride(1), room.stride(2) if Q > 1 else 0, copies), flags


@triton.jit
def _look_back(  # noqa: PLR0915
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at, d_k_at, d_v_at,
    d_table_at, d_table_b, d_table_h, d_table_q, copies,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t,
    d_q_b, d_q_h, d_q_t, d_k_b, d_k_h, d_k_t, d_v_b, d_v_h, d_v_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_places_t, k_places_t, firsts_at, firsts_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    LEARNS: tl.constexpr, ONCE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    col = tl.program_id(0) * COLS
    cols = col + tl.arange(0, COLS)
    table_at += batch * table_b + head * table_h
    if LEARNS:
        d_table_at += (batch if OWN else (n * tl.num_programs(0) + tl.program_id(0)) % copies) * d_table_b
        d_table_at += head * d_table_h
    slope = 0.0
    if SLOPED:
        slope = tl.load(slopes_at + head) * LOG2E
    k = rows_of(k_at + batch * k_b + head * k_h, col, k_t, K, E, COLS, WIDTH)
    v = rows_of(v_at + batch * v_b + head * v_h, col, v_t, K, E3, COLS, WIDE)
    q_at += batch * q_b + head * q_h
    d_out_at += batch * d_out_b + head * d_out_h
    d_q_at += batch * d_q_b + head * d_q_h
    log_sum_at += n * Q
    delta_at += n * Q
    end = end_row(tl.minimum(col + COLS, K) - 1, offset, window, Q, WINDOWED)
    if ENDED:
        end = tl.minimum(end, tl.load(ends_at + batch).to(tl.int32))
    if PADDED:
        seen = tl.load(lengths_at + batch * lengths_b).to(tl.int32)
        end = tl.where((lengths_q == 0) & (col >= seen), 0, end)
    sure_low, sure_end = sure_rows(
        col, col + COLS, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
        PADDED, ENDED, CAUSAL, WINDOWED, CUT,
    )  # fmt: skip
    lead, in_row = ahead(firsts_at, firsts_b, batch, 0, col)
    low, left, left_end, right, right_end, others = sides(
        first_row(col, offset, window, CAUSAL, WINDOWED), end, sure_low, tl.where(in_row, sure_end, 0),
        1 - lead - reach, COLS - 1 - lead + reach, ROWS,
    )  # fmt: skip
    d_k = tl.zeros([COLS, WIDTH], tl.float32)
    d_v = tl.zeros([COLS, WIDE], tl.float32)
    # Queries that stand before the keys, for whom the keys are on the right, then queries that stand behind.
    d_k, d_v = _far_back(
        k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at, d_table_at + 2 * reach, d_table_q,
        table_at + 2 * reach, table_q, q_t, d_out_t, d_q_t, left, left_end, lead, -slope, scale, dropout, cols, K, n,
        d_k, d_v, E, E3, TABLED, OWN, SLOPED, DROPS, LEARNS, ONCE, WIDTH, WIDE, EXACT, ROWS, COLS,
    )  # fmt: skip
    d_k, d_v = _far_back(
        k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at, d_table_at, d_table_q,
        table_at, table_q, q_t, d_out_t, d_q_t, right, right_end, lead, slope, scale, dropout, cols, K, n,
        d_k, d_v, E, E3, TABLED, OWN, SLOPED, DROPS, LEARNS, ONCE, WIDTH, WIDE, EXACT, ROWS, COLS,
    )  # fmt: skip
    k_places = places_of(k_places_at + batch * k_places_b, k_places_t, cols, K)
    q_places_at += batch * q_places_b
    for i in tl.range(0, others, num_stages=NEAR_STAGES):
        row = other(i, low, left, left_end, right, right_end, ROWS)
        rows = row + tl.arange(0, ROWS)
        q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH)
        q_places = places_of(q_places_at, q_places_t, rows, Q)
        start = by_pair(
            k_places[:, None], q_places[None, :], (table_at + rows * table_q)[None, :], (rows < Q)[None, :],
            reach, slope, scale, TABLED, SLOPED,
        )  # fmt: skip
        # (COLS, ROWS): keys by queries
        scores = tl.dot(k, tl.trans(q), start, input_precision=EXACT) * (scale * LOG2E)
        if not PLAIN:
            scores = forbid(
                scores, rows[None, :], cols[:, None], batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT,
            )  # fmt: skip
        p = tl.exp2(scores - tl.load(log_sum_at + rows, rows < Q, float("inf"))[None, :])
        d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE)
        delta = tl.load(delta_at + rows, rows < Q, 0.0)
        d_v, d_scores = _pass_on(p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        if LEARNS:
            if OWN or not in_row:
                at = d_table_at + rows[None, :] * d_table_q + entry(k_places[:, None], q_places[None, :], reach)
                tl.atomic_add(at, d_scores, (rows < Q)[None, :] & (cols < K)[:, None], sem="relaxed")
            else:
                _add_diagonals(d_scores, d_table_at, -lead - row, reach, ROWS, COLS)
        d_scores = d_scores.to(q.dtype)
        d_k = tl.dot(d_scores, q, d_k, input_precision=EXACT)
        if ONCE:
            _add_queries(d_scores, k, d_q_at, rows, d_q_t, Q, scale, E, WIDTH, EXACT)
    put(d_k_at + batch * d_k_b + head * d_k_h, d_k * scale, cols, d_k_t, K, E, WIDTH)
    put(d_v_at + batch * d_v_b + head * d_v_h, d_v, cols, d_v_t, K, E3, WIDE)


@triton.jit
def _far_back(
    k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at, d_table_at, d_table_q,
    table_at, table_q, q_t, d_out_t, d_q_t, begin, end, lead, slope, scale, dropout, cols, K, n,
    d_k, d_v, E: tl.constexpr, E3: tl.constexpr, TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr,
    DROPS: tl.constexpr, LEARNS: tl.constexpr, ONCE: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Goes through tiles that are whole and on one side: their bias is a number for each query, and one for each key.

    The queries' part goes into what is taken off their scores anyway.
    """
    sums = tl.zeros([COLS], tl.float32)
    place = tl.arange(0, COLS).to(tl.float32) * slope
    term = 0.0
    if TABLED and not OWN:
        term = tl.load(table_at) * LOG2E
    for row in range(begin, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        q = whole_rows(q_at, row, q_t, E, ROWS, WIDTH)
        scores = tl.dot(k, tl.trans(q), input_precision=EXACT)  # keys by queries
        less = tl.load(log_sum_at + rows) - term
        if OWN:
            less -= end_entry(table_at + rows * table_q, rows >= 0, TABLED)
        if SLOPED:
            less += slope * (rows + lead).to(tl.float32)
            p = tl.exp2(scores * (scale * LOG2E) + place[:, None] - less[None, :])
        else:
            p = tl.exp2(scores * (scale * LOG2E) - less[None, :])
        d_out = whole_rows(d_out_at, row, d_out_t, E3, ROWS, WIDE)
        delta = tl.load(delta_at + rows)
        d_v, d_scores = _pass_on(p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        if LEARNS:
            if OWN:
                tl.atomic_add(d_table_at + rows * d_table_q, tl.sum(d_scores, 0), sem="relaxed")
            else:
                sums += tl.sum(d_scores, 1)
        d_scores = d_scores.to(q.dtype)
        d_k = tl.dot(d_scores, q, d_k, input_precision=EXACT)
        if ONCE:
            _add_queries(d_scores, k, d_q_at, rows, d_q_t, end, scale, E, WIDTH, EXACT)
    if LEARNS and not OWN:
        tl.atomic_add(d_table_at, tl.sum(sums, 0), sem="relaxed")
    return d_k, d_v


@triton.jit
def _pass_on(
    p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """Adds to the values' gradients, and gives the scores', keys by queries."""
    d_p = tl.dot(v, tl.trans(d_out), input_precision=EXACT)
    stayed = p
    if DROPS:
        stay = kept(seed_at, n, rows[None, :] * K + cols[:, None], dropout)
        stayed = tl.where(stay, p / (1 - dropout), 0.0)
        d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
    return tl.dot(stayed.to(d_out.dtype), d_out, d_v, input_precision=EXACT), p * (d_p - delta[None, :])


@triton.jit
def _add_queries(d_scores, k, d_q_at, rows, d_q_t, Q, scale, E: tl.constexpr, WIDTH: tl.constexpr, EXACT: tl.constexpr):
    """Adds to the queries' gradients."""
    d_q = tl.dot(tl.trans(d_scores), k, input_precision=EXACT) * scale
    wide = tl.arange(0, WIDTH)
    place = d_q_at + rows.to(tl.int64)[:, None] * d_q_t + wide[None, :]
    tl.atomic_add(place, d_q, (rows < Q)[:, None] & (wide < E)[None, :], sem="relaxed")


@triton.jit
def _add_diagonals(d_scores, d_table_at, first, reach, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Adds a tile, keys by queries that stand in a row, to the entries that its pairs took."""
    c, x = tl.arange(0, COLS)[:, None], tl.arange(0, ROWS)[None, :]
    turned = tl.gather(d_scores, (c + x) % ROWS, 1)  # key c less query (c + x) mod ROWS is −x, ROWS more, or 2 ROWS
    for more in tl.static_range((COLS + ROWS - 1) // ROWS + 1):
        sums = tl.sum(tl.where((c + x) // ROWS == more, turned, 0.0), 0)
        entries = entry(first + more * ROWS, tl.arange(0, ROWS), reach)
        tl.atomic_add(d_table_at + entries, sums, sem="relaxed")
