"""Dot-product attention with a bias by offset inside the kernel: nothing of size Q · K is ever in memory."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.keep import kept
from regard.kernel.relative_backward import gradients
from regard.kernel.relative_places import BLOCK, LOG2E, end_entry, from_table, rows_of, span, strides, survey
from regard.kernel.sight import forbid, interval, sight
from regard.kernel.tune import about, tuned
from regard.mask import Mask
from regard.position.by_offset import ByOffset


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: ByOffset, scale: float, dropout: float, passes: int = 1
) -> Tensor:
    """Gives `softmax(scale · q kᵀ + bias) v`, (B, H, Q, E3), as flash attention does (arXiv:2205.14135).

    Tiles that lie beyond the table's reach take one number for each query. With one pass the gradients of queries are
    added up by atomic additions, in any order; with two they are made in a pass of their own.
    """
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
        offsets, flags = by_offset(bias, table, scale)
        rules, given = sight(mask, q.device)
        plain = not any(given.values()) and Q % (2 * BLOCK) == k.shape[2] % (2 * BLOCK) == 0
        flags = {**flags, **given, **widths(q, v), "DROPS": dropout > 0.0, "PLAIN": plain}
        _look[lambda chosen: (triton.cdiv(Q, chosen["ROWS"]), B * H)](
            *(q, k, v, out, log_sum, seed, *strides(q, k, v, out), *offsets, *rules),
            *(H, Q, k.shape[2], q.shape[3], E, scale, dropout, about(Q, k.shape[2])),
            **flags,
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


def by_offset(bias: ByOffset, table: Tensor | None, scale: float) -> tuple[tuple[Any, ...], dict[str, bool | int]]:
    """Gives what the kernels are told about a bias: places, table and slopes with the steps from one to the next.

    The table comes divided by the scale, as products start from it and are scaled then.
    """
    # Where there is no table its place is taken by a number that is never read.
    entries = torch.zeros(1, 1, 1, 1, device=bias.q_positions.device) if table is None else table / scale
    steps = [0 if n == 1 else step for n, step in zip(entries.shape[:3], entries.stride()[:3], strict=True)]
    (q_places, q_found), (k_places, k_found) = (survey(x) for x in (bias.q_positions, bias.k_positions))
    ahead = [0 if len(x) == 1 else x[0].numel() for x in (q_places, k_places, q_found, k_found)]
    slopes = None if bias.slopes is None else bias.slopes.float().contiguous()
    given = (q_places, k_places, *ahead[:2], q_found, k_found, *ahead[2:], entries, *steps, slopes, bias.reach)
    own = len(entries) > 1 or entries.shape[2] > 1
    return given, {"TABLED": table is not None, "OWN": own, "SLOPED": slopes is not None, "BLOCK": BLOCK}


def widths(q: Tensor, v: Tensor) -> dict[str, Any]:
    """Gives the powers of two that hold a head's features, and how products are made."""
    keys, values = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    return {"WIDTH": keys, "WIDE": values, "EXACT": "ieee" if q.dtype == torch.float32 else "tf32"}


@tuned(
    ("ROWS", "COLS"),
    [(128, 64, 8, 3, None), (128, 64, 4, 3, None), (64, 64, 4, 3, None)],
    key=("about", "E", "E3"),
)
@triton.jit
def _look(  # noqa: PLR0915
    q_at, k_at, v_at, out_at, log_sum_at, seed_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, out_b, out_h, out_t,
    q_places_at, k_places_at, q_places_b, k_places_b, q_found_at, k_found_at, q_found_b, k_found_b,
    table_at, table_b, table_h, table_q, slopes_at, reach,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    H, Q, K, E: tl.constexpr, E3: tl.constexpr, scale, dropout, about,
    TABLED: tl.constexpr, OWN: tl.constexpr, SLOPED: tl.constexpr, BLOCK: tl.constexpr, PLAIN: tl.constexpr,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, EXACT: tl.constexpr, DROPS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    batch, head = (tl.program_id(1) // H).to(tl.int64), tl.program_id(1) % H
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
    k_at += batch * k_b + head * k_h
    v_at += batch * v_b + head * v_h
    k_found_at += batch * k_found_b
    highest = tl.full([ROWS], -1e20, tl.float32)  # far above what stands for a forbidden score
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, WIDE], tl.float32)
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
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        if DROPS:
            p = tl.where(kept(seed_at, tl.program_id(1), rows[:, None] * K + cols[None, :], dropout), p, 0.0)
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE)
        mixed = tl.dot(p.to(v.dtype), v, mixed * shrink[:, None], input_precision=EXACT)
        highest = higher
    nobody = total == 0.0
    total = tl.where(nobody, 1.0, total)
    # Of a query that sees no key the number is +∞, so that all its weights are zeros later on.
    log_sum = tl.where(nobody, float("inf"), highest + tl.log2(total))
    tl.store(log_sum_at + tl.program_id(1).to(tl.int64) * Q + rows, log_sum, rows < Q)
    out = mixed / (total * (1 - dropout))[:, None]
    wide = tl.arange(0, WIDE)
    place = out_at + batch * out_b + head * out_h + rows.to(tl.int64)[:, None] * out_t + wide[None, :]
    tl.store(place, out.to(out_at.dtype.element_ty), (rows < Q)[:, None] & (wide < E3)[None, :])
