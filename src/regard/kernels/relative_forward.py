"""Flash attention with an offset bias."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import interval, kept, sight, sure_keys
from regard.kernels.relative_backward import gradients
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
    survey,
)
from regard.mask import Mask
from regard.position.contract import OffsetBias

ROWS = 64
# Below 2⁻³² of the greatest weight; as weights fall with distance, all that is left out stays below 2⁻²⁴ of a row.
BITS = tl.constexpr(32.0)
FARTHEST = tl.constexpr(1e9)


def measure(k: Tensor) -> Tensor:
    """Gives the length of each head's longest key as the bits of a float32, and room for distances: (2, B · H)."""
    B, H, K, E = k.shape
    found = torch.zeros(2, B * H, dtype=torch.int32, device=k.device)
    wide = max(16, triton.next_power_of_2(E))
    _measure[triton.cdiv(K, ROWS), B * H](k, found, *k.stride()[:3], H, K, E, WIDTH=wide, ROWS=ROWS, num_warps=4)
    return found


@triton.jit
def _measure(k_at, found_at, k_b, k_h, k_t, H, K, E: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    n = tl.program_id(1)
    k_at += (n // H).to(tl.int64) * k_b + n % H * k_h
    lengths = length(rows_of(k_at, tl.program_id(0) * ROWS, k_t, K, E, ROWS, WIDTH, False))
    # Numbers that are not negative are in the order of their bits.
    tl.atomic_max(found_at + n, tl.max(lengths, 0).to(tl.int32, bitcast=True), sem="relaxed")


@triton.jit
def length(x):
    """Gives the length of each row."""
    x = x.to(tl.float32)
    return tl.sqrt(tl.sum(x * x, 1))


@triton.jit
def bound(q, longest_at, scale):
    """Gives what no product of these queries exceeds (Cauchy and Schwarz), as powers of two, above the least weight."""
    return length(q) * tl.load(longest_at).to(tl.float32, bitcast=True) * (scale * LOG2E) + BITS


@triton.jit
def farthest(most, seen, real, slope):
    """Gives the greatest distance at which a key may have a weight, of queries of which scores up to `seen` are known.

    The slope takes the more off what a product can be at `most`, the farther a key is away.
    """
    distance = tl.where(slope > 0.0, tl.minimum((most - seen) / slope, FARTHEST), FARTHEST)
    return tl.max(tl.where(real, distance, 0.0), 0).to(tl.int32) + 1


SHAPES = {
    # What places in no row take of registers must not keep a third program off a multiprocessor.
    "table": {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3, "maxnreg": 168},
    "slopes": {"ROWS": 128, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3},
}
# Entries by which a table is filled up at either end: more than the sides of a tile.
EDGE = 512


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: OffsetBias, scale: float, dropout: float
) -> Tensor:
    """Gives `softmax(scale · q kᵀ + bias) v`, (B, H, Q, E3), as flash attention does (arXiv:2205.14135).

    Tiles of tokens in a row that lie beyond the table's reach, or wholly on one side, have no bias for single pairs: it
    costs nothing there. Those that a slope alone takes too far down for any weight in float32 are left out.
    """
    assert scale > 0.0, f"the largest product must be the largest score, so the scale must be positive, got {scale}"
    return RelativeAttention.apply(q, k, v, bias.table, bias, mask, scale, dropout)  # pyright: ignore


class RelativeAttention(torch.autograd.Function):
    """Keeps its inputs, the output and one number for each query."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        table: Tensor | None,
        bias: OffsetBias,
        mask: Mask,
        scale: float,
        dropout: float,
    ) -> Tensor:
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        (B, H, Q, _), E = q.shape, v.shape[3]
        out = torch.empty(B, Q, H, E, dtype=v.dtype, device=v.device).transpose(1, 2)
        log_sum = torch.empty(B * H, Q, dtype=torch.float32, device=v.device)
        seed = torch.randint(2**31 - 1, (1,), device=v.device, dtype=torch.int32) if dropout else None
        offsets, flags = by_offset(bias, scale)
        found = measure(k) if flags["FADES"] else None
        rules, given = sight(mask, q.device)
        # No pair need be looked at where tiles of every shape end where queries and keys do.
        plain = not any(given.values()) and Q % 128 == k.shape[2] % 128 == 0
        flags = {**flags, **given, **widths(q, v), "DROPS": dropout > 0.0, "PLAIN": plain}
        shape = SHAPES["table" if flags["TABLED"] else "slopes"]
        _look[triton.cdiv(Q, shape["ROWS"]), B * H](
            *(q, k, v, out, log_sum, seed, found, *strides(q, k, v, out), *offsets, *rules),
            *(H, Q, k.shape[2], q.shape[3], E, scale, dropout),
            **flags,
            HARDWARE=q.is_cuda,
            **shape,
        )
        ctx.save_for_backward(q, k, v, table, out, log_sum, seed, found)
        ctx.rest = (offsets, rules, flags, scale, dropout)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        wanted = ctx.needs_input_grad[3]
        grads = gradients(ctx.saved_tensors, d_out, wanted, *ctx.rest)
        return *grads, None, None, None, None


def by_offset(bias: OffsetBias, scale: float) -> tuple[tuple[Any, ...], dict[str, bool]]:
    """Gives what the kernels are told about a bias: places, table and slopes with the steps from one to the next."""
    places = (bias.q_positions, bias.k_positions)
    firsts = survey(*places)
    steps = [0 if x.shape[axis] == 1 else x.stride(axis) for axis in (0, 1) for x in places]
    slopes = None if bias.slopes is None else bias.slopes.float()
    flags = {"TABLED": bias.table is not None, "OWN": False, "SLOPED": slopes is not None}
    flags["FADES"] = slopes is not None and bias.table is None
    table, table_steps = firsts, [0, 0, 0]  # where there is no table its place is taken by numbers never read
    if bias.table is not None:
        flags["OWN"] = bias.table.shape[0] > 1 or bias.table.shape[2] > 1
        table = bias.table.float().contiguous() if flags["OWN"] else filled_up(bias.table, scale)
        table_steps = [0 if table.shape[axis] == 1 else table.stride(axis) for axis in range(3)]
    return (*places, *steps, firsts, firsts.shape[1], table, *table_steps, slopes, bias.max_offset), flags


def filled_up(table: Tensor, scale: float) -> Tensor:
    """Gives a table that all queries share, (1, H, 1, W), to start products from, with its ends on in memory."""
    W = table.shape[3]
    entries = torch.nn.functional.pad(table[:, :, 0].float() * (1.0 / scale), (EDGE, EDGE), mode="replicate")
    return entries[:, :, None, EDGE : EDGE + W]


def widths(q: Tensor, v: Tensor) -> dict[str, Any]:
    """Gives the powers of two that hold a head's features, and how products are made."""
    keys, values = (max(16, triton.next_power_of_2(x.shape[3])) for x in (q, v))
    return {"WIDTH": keys, "WIDE": values, "EXACT": "ieee" if q.dtype == torch.float32 else "tf32"}


@triton.jit
def _look(  # noqa: PLR0915
    q_at, k_at, v_at, out_at, log_sum_at, seed_at, found_at,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, out_b, out_h, out_t,
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
    batch, head = n // H, tl.program_id(1) % H
    row = tl.program_id(0) * ROWS
    rows = row + tl.arange(0, ROWS)
    low, high = interval(
        rows, batch, Q, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    table_at += batch * table_b + head * table_h
    own_at = table_at + rows * table_q
    slope = slope_of(slopes_at, head, SLOPED)
    q = rows_of(q_at + batch * q_b + head * q_h, row, q_t, Q, E, ROWS, WIDTH, PLAIN)
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
    if TABLED and not OWN:
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
            v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, PLAIN)
            higher = tl.maximum(highest, tl.max(scores, 1))
            p = tl.exp2(scores - higher[:, None])
            total, mixed = _mix(p, v, highest, higher, total, mixed, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
            highest = higher
        others = tl.where(in_row, 0, others)
    q_places = places_of(q_places_at + batch * q_places_b, q_places_t, rows, Q)
    k_places_at += batch * k_places_b
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
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, PLAIN)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.exp2(scores - higher[:, None])
        total, mixed = _mix(p, v, highest, higher, total, mixed, rows, cols, K, n, seed_at, dropout, DROPS, EXACT)
        highest = higher
    if FADES:
        far = farthest(bound(q, found_at + n, scale), highest, low < high, slope)
        tl.atomic_max(found_at + tl.num_programs(1) + n, far, sem="relaxed")
        left, right_end = narrow(left, left_end, right, right_end, lead - far, lead + ROWS + far, COLS)
    place = tl.arange(0, ROWS).to(tl.float32) * slope
    term = end_entry(own_at, rows < Q, scale, TABLED, OWN) - place
    highest, total, mixed = _mix_far(
        q, k_at, v_at, left, left_end, lead, term, slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        highest, total, mixed, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
    term = end_entry(own_at + 2 * reach, rows < Q, scale, TABLED, OWN) + place
    highest, total, mixed = _mix_far(
        q, k_at, v_at, right, right_end, lead, term, -slope, k_t, v_t, scale, rows, K, n, seed_at, dropout,
        highest, total, mixed, E, E3, SLOPED, DROPS, WIDTH, WIDE, EXACT, COLS,
    )  # fmt: skip
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
        k = rows_of(k_at, col, k_t, K, E, COLS, WIDTH, True)
        scores = tl.dot(q, tl.trans(k), input_precision=EXACT)
        if SLOPED:
            here = term + slope * (col - lead)
            scores = scores * (scale * LOG2E) + place[None, :]
            higher = tl.maximum(highest, tl.max(scores, 1) + here)
            p = tl.exp2(scores - (higher - here)[:, None])
        else:
            higher = tl.maximum(highest, tl.max(scores, 1) * (scale * LOG2E) + term)
            p = tl.exp2(scores * (scale * LOG2E) - (higher - term)[:, None])
        v = rows_of(v_at, col, v_t, K, E3, COLS, WIDE, True)
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
