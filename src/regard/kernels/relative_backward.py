"""The gradients of dot-product attention with a bias by offset; the keys' and values' are made here.

A program owns some keys and goes through the queries that may see them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import relative_grad_q as relative_queries
from regard.kernels.primitives import end_row, first_row, kept, sure_rows
from regard.kernels.relative_grad_q import add_up, make_room, turn_back
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
    strides,
)

SHAPE = {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 1, "num_warps": 4, "num_stages": 2}


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, wanted: bool, offsets: tuple[Any, ...], rules: tuple[Any, ...],
    flags: dict[str, Any], scale: float, dropout: float,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gives the gradients of queries, keys, values, and of the table if it is wanted."""
    q, k, v, table, out, log_sum, seed, found = saved
    (_, H, Q, E), (K, E3) = q.shape, v.shape[2:]
    d_out = d_out.to(out.dtype)
    d_out = d_out if d_out.stride(3) == 1 else d_out.contiguous()
    d_q, d_k, d_v = (torch.empty_like(x) for x in (q, k, v))
    sizes = (H, Q, K, E, E3, scale, dropout)
    given = (q, k, v, d_out, log_sum, torch.empty_like(log_sum), seed, found)
    learns = wanted and table.shape[3] > 1  # the only entry of a table shifts all scores alike
    tile = relative_queries.SHAPE
    room, parts = make_room(table if learns else None, k, Q, flags["OWN"], tile)
    steps = strides(q, k, v, d_out, out, d_q)
    turn_back((*given, out), d_q, room, steps, offsets, rules, sizes, flags | {"LEARNS": learns})
    look_back(given, (d_k, d_v), offsets, rules, sizes, flags)
    if learns:
        return d_q, d_k, d_v, add_up(parts, table, offsets[6], H, K, flags["OWN"], tile)
    return d_q, d_k, d_v, torch.zeros_like(table) if wanted else None


def look_back(
    given: tuple[Tensor, ...], grads: tuple[Tensor, Tensor], offsets: tuple[Any, ...], rules: tuple[Any, ...],
    sizes: tuple[Any, ...], flags: dict[str, Any],
) -> None:  # fmt: skip
    """Writes the gradients of keys and values."""
    B, H, K, _ = grads[0].shape
    _look_back[triton.cdiv(K, SHAPE["COLS"]), B * H](
        *(*given, *grads, *strides(*given[:4], *grads), *offsets, *rules, *sizes),
        **flags,
        HARDWARE=given[0].is_cuda,
        **SHAPE,
    )


@triton.jit
def _look_back(  # noqa: PLR0915
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, found_at, d_k_at, d_v_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t, d_k_b, d_k_h, d_k_t, d_v_b, d_v_h, d_v_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_places_t, k_places_t, firsts_at, firsts_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, FADES: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr, HARDWARE: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    col = tl.program_id(0) * COLS
    cols = col + tl.arange(0, COLS)
    table_at += batch * table_b + head * table_h
    slope = slope_of(slopes_at, head, SLOPED)
    k = rows_of(k_at + batch * k_b + head * k_h, col, k_t, K, E, COLS, WIDTH, PLAIN)
    v = rows_of(v_at + batch * v_b + head * v_h, col, v_t, K, E3, COLS, WIDE, PLAIN)
    q_at += batch * q_b + head * q_h
    d_out_at += batch * d_out_b + head * d_out_h
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
    if TABLED and not OWN:
        steps = tl.arange(0, COLS).to(tl.int64)[:, None] - tl.arange(0, ROWS).to(tl.int64)[None, :]
        for i in tl.range(0, tl.where(in_row, others, 0), num_stages=NEAR_STAGES):
            row = other(i, low, left, left_end, right, right_end, ROWS)
            rows = row + tl.arange(0, ROWS)
            q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH, PLAIN)
            scores = near_scores(
                k, q, rows[None, :], cols[:, None], table_at, -lead - row, steps, reach, slope, scale, batch, head,
                Q, K, lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, TABLED, OWN, SLOPED, PLAIN, PADDED, ENDED, CAUSAL, WINDOWED, CUT, EXACT, True, HARDWARE,
            )  # fmt: skip
            p = tl.exp2(scores - tl.load(log_sum_at + rows, rows < Q, float("inf"))[None, :])
            d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE, PLAIN)
            delta = tl.load(delta_at + rows, rows < Q, 0.0)
            d_v, d_scores = _pass_on(p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
            d_k = tl.dot(d_scores.to(q.dtype), q, d_k, input_precision=EXACT)
        others = tl.where(in_row, 0, others)
    k_places = places_of(k_places_at + batch * k_places_b, k_places_t, cols, K)
    q_places_at += batch * q_places_b
    for i in tl.range(0, others, num_stages=1 if TABLED else NEAR_STAGES):
        row = other(i, low, left, left_end, right, right_end, ROWS)
        rows = row + tl.arange(0, ROWS)
        q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH, PLAIN)
        apart = k_places[:, None] - places_of(q_places_at, q_places_t, rows, Q)[None, :]
        scores = near_scores(
            k, q, rows[None, :], cols[:, None], (table_at + rows * table_q)[None, :], 0, apart, reach, slope, scale,
            batch, head, Q, K, lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q,
            allowed_k, offset, window, TABLED, OWN, SLOPED, PLAIN, PADDED, ENDED, CAUSAL, WINDOWED, CUT, EXACT, False,
            HARDWARE,
        )  # fmt: skip
        p = tl.exp2(scores - tl.load(log_sum_at + rows, rows < Q, float("inf"))[None, :])
        d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE, PLAIN)
        delta = tl.load(delta_at + rows, rows < Q, 0.0)
        d_v, d_scores = _pass_on(p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        d_k = tl.dot(d_scores.to(q.dtype), q, d_k, input_precision=EXACT)
    if FADES:
        far = tl.load(found_at + tl.num_programs(1) + n)
        left, right_end = narrow(left, left_end, right, right_end, -lead - far, COLS - lead + far, ROWS)
    # Queries that stand before the keys, for whom the keys are on the right, then queries that stand behind.
    d_k, d_v = _far_back(
        k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, table_at + 2 * reach, table_q, q_t, d_out_t,
        left, left_end, lead, -slope, scale, dropout, cols, Q, K, n,
        d_k, d_v, E, E3, TABLED, OWN, SLOPED, DROPS, WIDTH, WIDE, EXACT, ROWS, COLS,
    )  # fmt: skip
    d_k, d_v = _far_back(
        k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, table_at, table_q, q_t, d_out_t,
        right, right_end, lead, slope, scale, dropout, cols, Q, K, n,
        d_k, d_v, E, E3, TABLED, OWN, SLOPED, DROPS, WIDTH, WIDE, EXACT, ROWS, COLS,
    )  # fmt: skip
    put(d_k_at + batch * d_k_b + head * d_k_h, d_k * scale, cols, d_k_t, K, E, WIDTH)
    put(d_v_at + batch * d_v_b + head * d_v_h, d_v, cols, d_v_t, K, E3, WIDE)


@triton.jit
def _far_back(
    k, v, q_at, d_out_at, log_sum_at, delta_at, seed_at, table_at, table_q, q_t, d_out_t,
    begin, end, lead, slope, scale, dropout, cols, Q, K, n,
    d_k, d_v, E: tl.constexpr, E3: tl.constexpr, TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr,
    DROPS: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Goes through tiles that are whole and on one side: their bias is a number for each query, and one for each key.

    The queries' part goes into what is taken off their scores anyway.
    """
    place = tl.arange(0, COLS).to(tl.float32) * slope
    term = 0.0
    if TABLED and not OWN:
        term = tl.load(table_at) * (scale * LOG2E)
    for row in range(begin, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH, True)
        scores = tl.dot(k, tl.trans(q), input_precision=EXACT)  # keys by queries
        less = tl.load(log_sum_at + rows) - term
        if OWN:
            less -= end_entry(table_at + rows * table_q, rows >= 0, scale, TABLED, OWN)
        if SLOPED:
            less += slope * (rows + lead).to(tl.float32)
            p = tl.exp2(scores * (scale * LOG2E) + place[:, None] - less[None, :])
        else:
            p = tl.exp2(scores * (scale * LOG2E) - less[None, :])
        d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE, True)
        delta = tl.load(delta_at + rows)
        d_v, d_scores = _pass_on(p, v, d_out, delta, d_v, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        d_k = tl.dot(d_scores.to(q.dtype), q, d_k, input_precision=EXACT)
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
