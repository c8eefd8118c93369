"""The gradient of a table of biases by offset, from the tiles within its reach.

It is the sum of the scores' gradients along diagonals. Each row of a tile is turned by its number, so that diagonals
become columns. Scores are made once more for it, but only near the diagonal.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_places import LOG2E, entry, far, rows_of, span
from regard.kernel.sight import end_row, first_row, forbid
from regard.kernel.tune import tuned


def sum_near(
    given: tuple[Tensor, ...], d_table: Tensor, table_steps: tuple[int, ...], steps: list[int],
    offsets: tuple[Any, ...], rules: tuple[Any, ...], sizes: tuple[Any, ...], flags: dict[str, Any],
) -> None:  # fmt: skip
    """Adds them to zeros or to what is there; a program owns some keys and goes through the queries."""
    (B, H), K = given[0].shape[:2], given[1].shape[2]
    flags = {name: on for name, on in flags.items() if name not in {"LEARNS", "PLAIN", "TABLED"}}
    _sum_near[lambda chosen: (triton.cdiv(K, chosen["COLS"]), B * H)](
        *(*given, d_table, *table_steps, *steps, *offsets, *rules, *sizes), **flags
    )


@tuned(
    ("ROWS", "COLS"),
    [(64, 64, 4, 1, None), (64, 128, 8, 1, None)],
    key=("about", "E", "E3", "reach"),
    sums=("d_table_at",),
)
@triton.jit
def _sum_near(  # noqa: PLR0915
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at,
    d_table_at, d_table_b, d_table_h, d_table_q, copies,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_found_at, k_found_at, q_found_b, k_found_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout, about,
    SLOPED: tl.constexpr, BLOCK: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    OWN: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    col = tl.program_id(0) * COLS
    cols = col + tl.arange(0, COLS)
    k_places = tl.load(k_places_at + batch * k_places_b + cols)
    k_found_at += batch * k_found_b
    _, _, k_first = span(k_found_at, col, BLOCK, COLS)
    table_at += batch * table_b + head * table_h
    d_table_at += (batch if OWN else (n * tl.num_programs(0) + tl.program_id(0)) % copies) * d_table_b
    d_table_at += head * d_table_h
    slope = 0.0
    if SLOPED:
        slope = tl.load(slopes_at + head) * LOG2E
    k = rows_of(k_at + batch * k_b + head * k_h, col, k_t, K, E, COLS, WIDTH)
    v = rows_of(v_at + batch * v_b + head * v_h, col, v_t, K, E3, COLS, WIDE)
    q_at += batch * q_b + head * q_h
    d_out_at += batch * d_out_b + head * d_out_h
    q_found_at += batch * q_found_b
    end = end_row(tl.minimum(col + COLS, K) - 1, offset, window, Q, WINDOWED)
    for row in range(first_row(col, offset, window, CAUSAL, WINDOWED) // ROWS * ROWS, end, ROWS):
        before, behind = far(k_found_at, q_found_at, col, row, reach, BLOCK)
        if not (before | behind):
            _, _, q_first = span(q_found_at, row, BLOCK, ROWS)
            rows = row + tl.arange(0, ROWS)
            q_places = tl.load(q_places_at + batch * q_places_b + rows)
            at = entry(k_places[:, None], q_places[None, :], reach)
            start = tl.load(table_at + rows[None, :] * table_q + at, (rows < Q)[None, :], 0.0)
            q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH)
            scores = tl.dot(k, tl.trans(q), start, input_precision=EXACT) * (scale * LOG2E)  # keys by queries
            if SLOPED:
                scores -= slope * tl.abs(k_places[:, None].to(tl.float32) - q_places[None, :].to(tl.float32))
            scores = forbid(
                scores, rows[None, :], cols[:, None], row, col, batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT, ROWS, COLS,
            )  # fmt: skip
            log_sum = tl.load(log_sum_at + n * Q + rows, rows < Q, float("inf"))
            p = tl.exp2(scores - log_sum[None, :])
            d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE)
            d_p = tl.dot(v, tl.trans(d_out), input_precision=EXACT)
            if DROPS:
                stay = kept(seed_at, n, rows[None, :] * K + cols[:, None], dropout)
                d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
            delta = tl.load(delta_at + n * Q + rows, rows < Q, 0.0)
            d_scores = p * (d_p - delta[None, :])
            if OWN:
                tl.atomic_add(d_table_at + rows[None, :] * d_table_q + at, d_scores, (rows < Q)[None, :], sem="relaxed")
            elif (k_first >= 0) & (q_first >= 0):
                _add_diagonals(d_scores, d_table_at, k_first - q_first, reach, ROWS, COLS)
            else:
                tl.atomic_add(d_table_at + at, d_scores, (rows < Q)[None, :], sem="relaxed")


@triton.jit
def _add_diagonals(d_scores, d_table_at, first, reach, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Adds a tile, keys by queries that stand in a row, to the entries that its pairs took."""
    c, x = tl.arange(0, COLS)[:, None], tl.arange(0, ROWS)[None, :]
    turned = tl.gather(d_scores, (c + x) % ROWS, 1)  # key c less query (c + x) mod ROWS is −x, ROWS more, or 2 ROWS
    for more in tl.static_range(COLS // ROWS + 1):
        sums = tl.sum(tl.where((c + x) // ROWS == more, turned, 0.0), 0)
        entries = entry(first + more * ROWS, tl.arange(0, ROWS), reach)
        tl.atomic_add(d_table_at + entries, sums, sem="relaxed")
