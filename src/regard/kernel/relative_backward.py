"""The gradients of dot-product attention with a bias by offset.

A program owns some keys and goes through the queries that may see them. Of the table's gradient it makes the part that
comes from beyond the table's reach, where a whole tile has one entry.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_places import LOG2E, end_entry, far, from_table, put, rows_of, span, strides
from regard.kernel.relative_queries import turn_back
from regard.kernel.relative_table import sum_near
from regard.kernel.sight import end_row, first_row, forbid
from regard.kernel.tune import about, tuned

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
    delta = torch.empty_like(log_sum)
    _delta[(triton.cdiv(Q, 64), B * H)](
        *(out, d_out, delta, *strides(out, d_out), H, Q, E3), ROWS=64, WIDE=flags["WIDE"], num_warps=4
    )
    d_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device) if passes == 1 else torch.empty_like(q)
    d_k, d_v = torch.empty_like(k), torch.empty_like(v)
    d_table, steps, flags = make_room(table if wanted else None, B, flags)
    sizes = (H, Q, K, E, E3, scale, dropout, about(Q, K))
    given = (q, k, v, d_out, log_sum, delta, seed)
    _look_back[lambda chosen: (triton.cdiv(K, chosen["COLS"]), B * H)](
        *(
            *given,
            d_q,
            d_k,
            d_v,
            delta if d_table is None else d_table,
            *steps,
            *strides(q, k, v, d_out, d_q, d_k, d_v),
        ),
        *(*offsets, *rules, *sizes),
        **flags,
        ONCE=passes == 1,
    )
    if d_table is not None:
        sum_near(given, d_table, steps, strides(q, k, v, d_out), offsets, rules, sizes, flags)
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
def _delta(
    out_at, d_out_at, delta_at, out_b, out_h, out_t, d_b, d_h, d_t, H, Q, E: tl.constexpr,
    ROWS: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
    row = tl.program_id(0) * ROWS
    out = rows_of(out_at + batch * out_b + head * out_h, row, out_t, Q, E, ROWS, WIDE).to(tl.float32)
    d_out = rows_of(d_out_at + batch * d_b + head * d_h, row, d_t, Q, E, ROWS, WIDE).to(tl.float32)
    rows = row + tl.arange(0, ROWS)
    tl.store(delta_at + tl.program_id(1).to(tl.int64) * Q + rows, tl.sum(out * d_out, 1), rows < Q)


@tuned(
    ("ROWS", "COLS"),
    [(64, 128, 8, 2, None), (64, 64, 4, 2, None), (128, 128, 8, 2, None)],
    key=("about", "E", "E3", "LEARNS"),
    sums=("d_q_at", "d_table_at"),
)
@triton.jit
def _look_back(  # noqa: C901, PLR0912, PLR0915
    q_at, k_at, v_at, d_out_at, log_sum_at, delta_at, seed_at, d_q_at, d_k_at, d_v_at,
    d_table_at, d_table_b, d_table_h, d_table_q, copies,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, d_out_b, d_out_h, d_out_t,
    d_q_b, d_q_h, d_q_t, d_k_b, d_k_h, d_k_t, d_v_b, d_v_h, d_v_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_found_at, k_found_at, q_found_b, k_found_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout, about,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, BLOCK: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    LEARNS: tl.constexpr, ONCE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    batch, head = n // H, n % H
    col = tl.program_id(0) * COLS
    cols = col + tl.arange(0, COLS)
    k_places = tl.load(k_places_at + batch * k_places_b + cols)
    k_low, k_high, _ = span(k_found_at + batch * k_found_b, col, BLOCK, COLS)
    table_at += batch * table_b + head * table_h
    first_entry = tl.load(table_at)
    last_entry = tl.load(table_at + 2 * reach)
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
    q_found_at += batch * q_found_b
    d_k = tl.zeros([COLS, WIDTH], tl.float32)
    d_v = tl.zeros([COLS, WIDE], tl.float32)
    far_left = tl.zeros([COLS], tl.float32)
    far_right = tl.zeros([COLS], tl.float32)
    end = end_row(tl.minimum(col + COLS, K) - 1, offset, window, Q, WINDOWED)
    if ENDED:
        end = tl.minimum(end, tl.load(ends_at + batch).to(tl.int32))
    if PADDED:
        seen = tl.load(lengths_at + batch * lengths_b).to(tl.int32)
        end = tl.where((lengths_q == 0) & (col >= seen), 0, end)
    for row in range(first_row(col, offset, window, CAUSAL, WINDOWED) // ROWS * ROWS, end, ROWS):  # noqa: PLR1702
        rows = row + tl.arange(0, ROWS)
        q = rows_of(q_at, row, q_t, Q, E, ROWS, WIDTH)
        q_low, q_high, _ = span(q_found_at, row, BLOCK, ROWS)
        before, behind = k_high - q_low <= -reach, k_low - q_high >= reach
        q_places = tl.load(q_places_at + batch * q_places_b + rows)
        table_rows_at = table_at + rows * table_q
        left, right = first_entry, last_entry
        if OWN:
            left = end_entry(table_rows_at, rows < Q, TABLED)[None, :]
            right = end_entry(table_rows_at + 2 * reach, rows < Q, TABLED)[None, :]
        start = from_table(
            left, right, table_rows_at[None, :], (rows < Q)[None, :], k_places[:, None],
            q_places[None, :], before, behind, reach, TABLED, COLS, ROWS,
        )  # fmt: skip
        # (COLS, ROWS): keys by queries
        scores = tl.dot(k, tl.trans(q), start, input_precision=EXACT) * (scale * LOG2E)
        if SLOPED:
            scores -= slope * tl.abs(k_places[:, None].to(tl.float32) - q_places[None, :].to(tl.float32))
        if not PLAIN:
            scores = forbid(
                scores, rows[None, :], cols[:, None], row, col, batch, head, Q, K,
                lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
                offset, window, PADDED, ENDED, CAUSAL, WINDOWED, CUT, ROWS, COLS,
            )  # fmt: skip
        log_sum = tl.load(log_sum_at + n * Q + rows, rows < Q, float("inf"))
        p = tl.exp2(scores - log_sum[None, :])
        d_out = rows_of(d_out_at, row, d_out_t, Q, E3, ROWS, WIDE)
        d_p = tl.dot(v, tl.trans(d_out), input_precision=EXACT)
        delta = tl.load(delta_at + n * Q + rows, rows < Q, 0.0)
        stayed = p
        if DROPS:
            stay = kept(seed_at, n, rows[None, :] * K + cols[:, None], dropout)
            stayed = tl.where(stay, p / (1 - dropout), 0.0)
            d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
        d_v = tl.dot(stayed.to(d_out.dtype), d_out, d_v, input_precision=EXACT)
        d_scores = p * (d_p - delta[None, :])
        if LEARNS:
            before, behind = far(k_found_at + batch * k_found_b, q_found_at, col, row, reach, BLOCK)
            if OWN:
                if before | behind:
                    far_at = d_table_at + rows * d_table_q + tl.where(before, 0, 2 * reach)
                    tl.atomic_add(far_at, tl.sum(d_scores, 0), rows < Q, sem="relaxed")
            else:
                sums = tl.sum(d_scores, 1)
                far_left += tl.where(before, sums, 0.0)
                far_right += tl.where(before, 0.0, tl.where(behind, sums, 0.0))
        d_scores = d_scores.to(q.dtype)
        d_k = tl.dot(d_scores, q, d_k, input_precision=EXACT)
        if ONCE:
            d_q = tl.dot(tl.trans(d_scores), k, input_precision=EXACT) * scale
            wide = tl.arange(0, WIDTH)
            place = d_q_at + rows.to(tl.int64)[:, None] * d_q_t + wide[None, :]
            tl.atomic_add(place, d_q, (rows < Q)[:, None] & (wide < E)[None, :], sem="relaxed")
    if LEARNS and not OWN:
        tl.atomic_add(d_table_at, tl.sum(far_left, 0), sem="relaxed")
        tl.atomic_add(d_table_at + 2 * reach, tl.sum(far_right, 0), sem="relaxed")
    put(d_k_at + batch * d_k_b + head * d_k_h, d_k * scale, cols, d_k_t, K, E, WIDTH)
    put(d_v_at + batch * d_v_b + head * d_v_h, d_v, cols, d_v_t, K, E3, WIDE)
