"""Dot-product attention with a bias by offset inside the kernel: nothing of size Q · K is ever in memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_backward import gradients
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
    strides,
    survey,
    whole_rows,
)
from regard.kernel.sight import forbid, interval, sight, sure_keys
from regard.mask import Mask
from regard.position.by_offset import ByOffset

SHAPE = {"ROWS": 128, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3}


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: ByOffset, scale: float, dropout: float, passes: int = 1
) -> Tensor:
    """Gives `softmax(scale · q kᵀ + bias) v`, (B, H, Q, E3), as flash attention does (arXiv:2205.14135).

    Tiles of tokens in a row that lie beyond the table's reach, or wholly on one side, have no bias for single pairs: it
    costs nothing there. With one pass the gradients of queries are added up by atomic additions, in any order; with two
    they are made in a pass of their own.
    """
    assert scale > 0.0, f"the largest product must be the largest score, so the scale must be positive, got {scale}"
    table = None if bias.table is None else bias.table.float().contiguous()
    return RelativeAttention.apply(q, k, v, table, bias, mask, scale, dropout, passes)  # pyright: ignore


class RelativeAttention(torch.autograd.Function):
    """Keeps its inputs, the output and one number for each query."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor | None,
        bias: ByOffset,
        mask: Mask,
        scale: float,
        dropout: float,
        passes: int,
    ) -> Tensor:
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        (B, H, Q, _), E = q.shape, v.shape[3]
        out = torch.empty(B, Q, H, E, dtype=v.dtype, device=v.device).transpose(1, 2)
        log_sum = torch.empty(B * H, Q, dtype=torch.float32, device=v.device)
        seed = torch.randint(2**31 - 1, (1,), device=v.device, dtype=torch.int32) if dropout else None
        offsets, flags = by_offset(bias, table)
        rules, given = sight(mask, q.device)
        # No pair need be looked at where tiles of every shape end where queries and keys do.
        plain = not any(given.values()) and Q % 128 == k.shape[2] % 128 == 0
        flags = {**flags, **given, **widths(q, v), "DROPS": dropout > 0.0, "PLAIN": plain}
        _look[triton.cdiv(Q, SHAPE["ROWS"]), B * H](
            *(q, k, v, out, log_sum, seed, *strides(q, k, v, out), *offsets, *rules),
            *(H, Q, k.shape[2], q.shape[3], E, scale, dropout),
            **flags,
            **SHAPE,
        )
        ctx.save_for_backward(q, k, v, table, out, log_sum, seed)
        ctx.rest = (offsets, rules, flags, scale, dropout, passes)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        wanted = ctx.needs_input_grad[3]
        grads = gradients(ctx.saved_tensors, d_out, wanted, *ctx.rest)
        return *grads, None, None, None, None, None


def by_offset(bias: ByOffset, table: Tensor | None) -> tuple[tuple[Any, ...], dict[str, bool]]:
    """Gives what the kernels are told about a bias: places, table and slopes with the steps from one to the next."""
    places = (bias.q_positions, bias.k_positions)
    firsts = survey(*places)
    steps = [0 if x.shape[axis] == 1 else x.stride(axis) for axis in (0, 1) for x in places]
    slopes = None if bias.slopes is None else bias.slopes.float()
    # Where there is no table its place is taken by numbers that are never read.
    shape, stride = ((1, 1, 1), (0, 0, 0)) if table is None else (table.shape, table.stride())
    table_steps = [0 if n == 1 else step for n, step in zip(shape[:3], stride[:3], strict=True)]
    given = (*places, *steps, firsts, firsts.shape[1], firsts if table is None else table, *table_steps)
    own = shape[0] > 1 or shape[2] > 1
    flags = {"TABLED": table is not None, "OWN": own, "SLOPED": slopes is not None}
    return (*given, slopes, bias.reach), flags


def widths(q: Tensor, v: Tensor) -> dict[str, Any]:
    """Gives the powers of two that hold a head's features, and how products are made."""
    keys, values = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    return {"WIDTH": keys, "WIDE": values, "EXACT": "ieee" if q.dtype == torch.float32 else "tf32"}


@triton.jit
def _look(  # noqa: PLR0915
    q_at, k_at, v_at, out_at, log_sum_at, seed_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, out_b, out_h, out_t,
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
    batch, head = n // H, tl.program_id(1) % H
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
    k_at += batch * k_b + head * k_h
    v_at += batch * v_b + head * v_h
    sure_low, sure_end = sure_keys(low, high, rows, Q, K, CUT)
    lead, in_row = ahead(firsts_at, firsts_b, batch, row, 0)
    low_tile, left, left_end, right, right_end, others = sides(
        tl.min(low, 0), tl.max(high, 0), sure_low, tl.where(in_row, sure_end, 0),
        lead - reach + 1, lead + ROWS - 1 + reach, COLS,
    )  # fmt: skip
    highest = tl.full([ROWS], -1e20, tl.float32)  # far above what stands for a forbidden score
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDE], tl.float32)
    place = tl.arange(0, ROWS).to(tl.float32) * slope
    term = end_entry(table_at, rows < Q, TABLED) - place
    highest, total, mixed = _mix_far(
        q, k_at, v_at, left, left_end, lead, term, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        highest, total, mixed, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    term = end_entry(table_at + 2 * reach, rows < Q, TABLED) + place
    highest, total, mixed = _mix_far(
        q, k_at, v_at, right, right_end, lead, term, -slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        highest, total, mixed, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
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
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE)
        total, mixed = _mix(p, v, highest, higher, total, mixed, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        highest = higher
    nobody = total == 0.0
    total = tl.where(nobody, 1.0, total)
    # Of a query that sees no key the number is +∞, so that all its weights are zeros later on.
    tl.store(log_sum_at + n * Q + rows, tl.where(nobody, float("inf"), highest + tl.log2(total)), rows < Q)
    put(out_at + batch * out_b + head * out_h, mixed / (total * (1 - dropout))[:, None], rows, out_t, Q, E3, WIDE)


@triton.jit
def _mix_far(
    q, k_at, v_at, begin, end, lead, term, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
    highest, total, mixed, E: tl.constexpr, E3: tl.constexpr, SLOPED: tl.constexpr, DROPS: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Goes through tiles that are whole and on one side: their bias is a number for each query, and one for each key.

    The queries' part goes into the maximum, so that it costs nothing for single pairs.
    """
    place = tl.arange(0, COLS).to(tl.float32) * slope
    for col in range(begin, end, COLS):
        cols = col + tl.arange(0, COLS)
        k = whole_rows(k_at, col, k_t, E, COLS, WIDTH)
        scores = tl.dot(q, tl.trans(k), input_precision=EXACT)
        if SLOPED:
            here = term + slope * (col - lead)
            scores = scores * (scale * LOG2E) + place[None, :]
            higher = tl.maximum(highest, tl.max(scores, 1) + here)
            p = tl.exp2(scores - (higher - here)[:, None])
        else:
            higher = tl.maximum(highest, tl.max(scores, 1) * (scale * LOG2E) + term)
            p = tl.exp2(scores * (scale * LOG2E) - (higher - term)[:, None])
        v = whole_rows(v_at, col, v_t, E3, COLS, WIDE)
        total, mixed = _mix(p, v, highest, higher, total, mixed, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        highest = higher
    return highest, total, mixed


@triton.jit
def _mix(
    p, v, highest, higher, total, mixed, rows, cols, K, n, seed_at, dropout, DROPS: tl.constexpr, EXACT: tl.constexpr
):  # fmt: skip
    """Adds values by their weights, and the weights, to what there is, of which the maximum was less."""
    shrink = tl.exp2(highest - higher)
    total = total * shrink + tl.sum(p, 1)
    if DROPS:
        p = tl.where(kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout), p, 0.0)
    return total, tl.dot(p.to(v.dtype), v, mixed * shrink[:, None], input_precision=EXACT)
