"""The gradients of queries alone, of dot-product attention with a bias by offset: always added in the same order."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_places import (
    LOG2E,
    ahead,
    by_pair,
    end_entry,
    other,
    places_of,
    put,
    rows_of,
    sides,
    whole_rows,
)
from regard.kernel.sight import forbid, interval, sure_keys

SHAPE = {"ROWS": 128, "COLS": 64, "NEAR_STAGES": 1, "num_warps": 8, "num_stages": 3}


def turn_back(
    given: tuple[Tensor, ...], d_q: Tensor, steps: list[int], offsets: tuple[Any, ...], rules: tuple[Any, ...],
    sizes: tuple[Any, ...], flags: dict[str, Any],
) -> None:  # fmt: skip
    """Writes them; a program owns some queries and goes through the keys that they may see."""
    B, H, Q, _ = d_q.shape
    flags = {name: on for name, on in flags.items() if name != "LEARNS"}
    _turn_back[triton.cdiv(Q, SHAPE["ROWS"]), B * H](*(*given, d_q, *steps, *offsets, *rules, *sizes), **flags, **SHAPE)


@triton.jit
def _turn_back(
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t, d_q_b, d_q_h, d_q_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_places_t, k_places_t, firsts_at, firsts_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    row = tl.program_id(0) * ROWS
    rows = row + tl.arange(0, ROWS)
    low, high = interval(
        rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    table_at += batch * table_b + head * table_h + rows * table_q
    slope = 0.0
    if SLOPED:
        slope = tl.load(slopes_at + head) * LOG2E
    q = rows_of(q_at + batch * q_b + head * q_h, row, q_t, Q, E, ROWS, WIDTH)
    d_out = rows_of(d_out_at + batch * d_out_b + head * d_out_h, row, d_out_t, Q, E3, ROWS, WIDE)
    log_sum = tl.load(log_sum_at + n * Q + rows, rows < Q, float("inf"))
    delta = tl.load(delta_at + n * Q + rows, rows < Q, 0.0)
    k_at += batch * k_b + head * k_h
    v_at += batch * v_b + head * v_h
    sure_low, sure_end = sure_keys(low, high, rows, Q, K, CUT)
    lead, in_row = ahead(firsts_at, firsts_b, batch, row, 0)
    low_tile, left, left_end, right, right_end, others = sides(
        tl.min(low, 0), tl.max(high, 0), sure_low, tl.where(in_row, sure_end, 0),
        lead - reach + 1, lead + ROWS - 1 + reach, COLS,
    )  # fmt: skip
    d_q = tl.zeros([ROWS, WIDTH], tl.float32)
    place = tl.arange(0, ROWS).to(tl.float32) * slope
    less = log_sum - end_entry(table_at, rows < Q, TABLED) + place
    d_q = _turn_far(
        q, d_out, k_at, v_at, left, left_end, lead, less, delta, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        d_q, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    less = log_sum - end_entry(table_at + 2 * reach, rows < Q, TABLED) - place
    d_q = _turn_far(
        q, d_out, k_at, v_at, right, right_end, lead, less, delta, -slope, k_t, v_t, scale, rows, K, n, seed_at,
        dropout, d_q, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    q_places = places_of(q_places_at + batch * q_places_b, q_places_t, rows, Q)
    k_places_at += batch * k_places_b
    for i in tl.range(0, others, num_stages=NEAR_STAGES):
        col = other(i, low_tile, left, left_end, right, right_end, COLS)
        cols = col + tl.arange(0, COLS)
        k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH)
        k_places = places_of(k_places_at, k_places_t, cols, K)
        start = by_pair(
            k_places[None, :], q_places[:, None], table_at[:, None], (rows < Q)[:, None],
            reach, slope, scale, TABLED, SLOPED,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k), start, input_precision=EXACT) * (scale * LOG2E)
        if not PLAIN:
            scores = forbid(
                scores, rows[:, None], cols[None, :], batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT,
            )  # fmt: skip
        p = tl.exp2(scores - log_sum[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE)
        d_q = _turn(p, k, v, d_out, delta, d_q, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
    put(d_q_at + batch * d_q_b + head * d_q_h, d_q * scale, rows, d_q_t, Q, E, WIDTH)


@triton.jit
def _turn_far(
    q, d_out, k_at, v_at, begin, end, lead, less, delta, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
    d_q, E: tl.constexpr, E3: tl.constexpr, SLOPED: tl.constexpr, DROPS: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Goes through tiles that are whole and on one side: their bias is a number for each query and each key."""
    place = tl.arange(0, COLS).to(tl.float32) * slope
    for col in range(begin, end, COLS):
        cols = col + tl.arange(0, COLS)
        k = whole_rows(k_at, col, k_t, E, COLS, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=EXACT) * (scale * LOG2E)
        here = less
        if SLOPED:
            here -= slope * (col - lead)
            scores += place[None, :]
        p = tl.exp2(scores - here[:, None])
        v = whole_rows(v_at, col, v_t, E3, COLS, WIDE)
        d_q = _turn(p, k, v, d_out, delta, d_q, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
    return d_q


@triton.jit
def _turn(
    p, k, v, d_out, delta, d_q, rows, cols, K, n, seed_at, dropout, DROPS: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """Adds what some keys contribute."""
    d_p = tl.dot(d_out, tl.trans(v), input_precision=EXACT)
    if DROPS:
        d_p = tl.where(kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout), d_p / (1 - dropout), 0.0)
    d_scores = p * (d_p - delta[:, None])
    return tl.dot(d_scores.to(k.dtype), k, d_q, input_precision=EXACT)
