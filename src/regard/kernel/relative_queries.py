"""The gradients of queries alone, of dot-product attention with a bias by offset: always added in the same order."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_places import LOG2E, end_entry, from_table, put, rows_of, span
from regard.kernel.sight import forbid, interval
from regard.kernel.tune import tuned


def turn_back(
    given: tuple[Tensor, ...], d_q: Tensor, steps: list[int], offsets: tuple[Any, ...], rules: tuple[Any, ...],
    sizes: tuple[Any, ...], flags: dict[str, Any],
) -> None:  # fmt: skip
    """Writes them; a program owns some queries and goes through the keys that they may see."""
    B, H, Q, _ = d_q.shape
    flags = {name: on for name, on in flags.items() if name != "LEARNS"}
    _turn_back[lambda chosen: (triton.cdiv(Q, chosen["ROWS"]), B * H)](
        *(*given, d_q, *steps, *offsets, *rules, *sizes), **flags
    )


@tuned(
    ("ROWS", "COLS"),
    [(128, 64, 8, 2, None), (64, 64, 4, 2, None)],
    key=("about", "E", "E3"),
)
@triton.jit
def _turn_back(
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t, d_q_b, d_q_h, d_q_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_found_at, k_found_at, q_found_b, k_found_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout, about,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, BLOCK: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    row = tl.program_id(0) * ROWS
    rows = row + tl.arange(0, ROWS)
    low, high = interval(
        rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    q_places = tl.load(q_places_at + batch * q_places_b + rows)
    q_low, q_high = tl.min(q_places, 0), tl.max(q_places, 0)
    table_rows_at = table_at + batch * table_b + head * table_h + rows * table_q
    left = end_entry(table_rows_at, rows < Q, TABLED)
    right = end_entry(table_rows_at + 2 * reach, rows < Q, TABLED)
    slope = 0.0
    if SLOPED:
        slope = tl.load(slopes_at + head) * LOG2E
    q = rows_of(q_at + batch * q_b + head * q_h, row, q_t, Q, E, ROWS, WIDTH)
    d_out = rows_of(d_out_at + batch * d_out_b + head * d_out_h, row, d_out_t, Q, E3, ROWS, WIDE)
    log_sum = tl.load(log_sum_at + n * Q + rows, rows < Q, float("inf"))
    delta = tl.load(delta_at + n * Q + rows, rows < Q, 0.0)
    k_at += batch * k_b + head * k_h
    v_at += batch * v_b + head * v_h
    k_found_at += batch * k_found_b
    d_q = tl.zeros([ROWS, WIDTH], tl.float32)
    for col in range(tl.min(low, 0) // COLS * COLS, tl.max(high, 0), COLS):
        cols = col + tl.arange(0, COLS)
        k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH)
        k_low, k_high, _ = span(k_found_at, col, BLOCK, COLS)
        k_places = tl.load(k_places_at + batch * k_places_b + cols)
        start = from_table(
            left[:, None], right[:, None], table_rows_at[:, None], (rows < Q)[:, None], k_places[None, :],
            q_places[:, None], k_high - q_low <= -reach, k_low - q_high >= reach, reach, TABLED, ROWS, COLS,
        )  # fmt: skip
        scores = tl.dot(q, tl.trans(k), start, input_precision=EXACT) * (scale * LOG2E)
        if SLOPED:
            scores -= slope * tl.abs(k_places[None, :].to(tl.float32) - q_places[:, None].to(tl.float32))
        if not PLAIN:
            scores = forbid(
                scores, rows[:, None], cols[None, :], row, col, batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT, ROWS, COLS,
            )  # fmt: skip
        p = tl.exp2(scores - log_sum[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE)
        d_p = tl.dot(d_out, tl.trans(v), input_precision=EXACT)
        if DROPS:
            stay = kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout)
            d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
        d_scores = p * (d_p - delta[:, None])
        d_q = tl.dot(d_scores.to(k.dtype), k, d_q, input_precision=EXACT)
    put(d_q_at + batch * d_q_b + head * d_q_h, d_q * scale, rows, d_q_t, Q, E, WIDTH)
