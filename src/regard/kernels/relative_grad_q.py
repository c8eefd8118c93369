"""Gradients of queries and of the table; a program owns some queries and goes through the keys that they may see.

Of consecutive tokens the strip of score gradients within a query's reach is stored, in the inputs' own type, and summed
along diagonals. All gradients of a query's scores add up to zero, so those of the last entry need not be computed.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import dropout_mask, head_args
from regard.kernels.relative_tiles import (
    LOG2E,
    Constants,
    RelativeArgs,
    diagonal_steps,
    end_entry,
    head_index,
    head_vectors,
    lead_of,
    load_positions,
    load_rows,
    near_scores,
    near_tile,
    query_bias,
    query_rows,
    query_tiles,
    skip_far,
    store_rows,
    within_reach,
)

SHAPE = {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3}
# Parts into which the sums are divided, so that a GPU is busy; diagonals and rows that a program sums at a time.
PARTS = 8
TABLE_SHAPE = {"DIAGONALS": 128, "STEP": 16, "num_warps": 4}
HELD = 2**14  # numbers that the last program of a head has in registers


class TableSums(NamedTuple):
    """Where the queries' kernel leaves the table's gradient, to be summed up later; Q · (reach + tile) numbers a head.

    A table that all share takes strips of score gradients, (B · H, rows, span), sums of what is left of them, and sums
    (B · H, copies, entries) for tokens that are not consecutive. Tables of each query take sums alone.
    """

    strips_ptr: Tensor
    span: int
    lefts_ptr: Tensor
    sums_ptr: Tensor
    sums_n: int
    sums_q: int
    copies: int
    sums_c: int
    extra: int


class QueryTile(NamedTuple):
    """A program's queries, what is known of them, and their gradients so far."""

    rows: tl.tensor
    q: tl.tensor
    d_out: tl.tensor
    log_sum: tl.tensor
    delta: tl.tensor
    d_q: tl.tensor


def query_gradients(
    given: tuple[tuple[Tensor | int, ...] | Tensor, ...],
    out: Tensor,
    d_q: Tensor,
    table: Tensor | None,
    args: RelativeArgs,
    constants: Constants,
) -> TableSums:
    """Write the queries' gradients, and return sums for the table's; none are made where the table is None.

    Write also the product of each output and its gradient, which the keys' gradients take.
    """
    B, H, Q, _ = d_q.shape
    sums = _no_sums(d_q) if table is None else _empty_sums(table, d_q, args.call.K, constants.PER_QUERY)
    constants = constants._replace(LEARNS=table is not None)
    _query_gradients_kernel[triton.cdiv(Q, SHAPE["ROWS"]), B * H](
        *(*given, head_args(out), head_args(d_q), sums, *args), C=constants, **SHAPE
    )
    return sums


def _no_sums(x: Tensor) -> TableSums:
    return TableSums(x, 0, x, x, 0, 0, 1, 0, 0)  # numbers that are never read stand in for all


def _empty_sums(table: Tensor, x: Tensor, K: int, per_query: bool) -> TableSums:
    (B, H, Q, _), (*_, n_rows, W) = x.shape, table.shape
    if per_query:
        sums = torch.zeros(B, H, n_rows, W, dtype=torch.float32, device=x.device)
        return TableSums(x, 0, x, sums, sums.stride(1), W if n_rows > 1 else 0, 1, 0, 0)
    rows, cols = SHAPE["ROWS"], SHAPE["COLS"]
    n_tiles, span = triton.cdiv(Q, rows), cols * min(triton.cdiv(K, cols), (rows + W - 4) // cols + 2)
    strips = torch.empty(B * H, n_tiles * rows, span, dtype=x.dtype, device=x.device)
    lefts = torch.empty(B * H, n_tiles, dtype=torch.float32, device=x.device)
    sums = torch.zeros(B * H, PARTS, rows + cols + W, dtype=torch.float32, device=x.device)
    return TableSums(strips, span, lefts, sums, sums.stride(0), 0, PARTS, sums.stride(1), rows + cols)


def table_gradient(sums: TableSums, table: Tensor, args: RelativeArgs, constants: Constants) -> Tensor:
    """Return the table's gradient."""
    if constants.PER_QUERY:
        return sums.sums_ptr.sum_to_size(table.shape).to(table.dtype)
    (N, n_tiles), W, n_sums = sums.lefts_ptr.shape, table.shape[3], sums.sums_ptr.shape[2]
    _sum_diagonals_kernel[triton.cdiv(n_sums, TABLE_SHAPE["DIAGONALS"]), PARTS, N](
        *(sums, args.bias, n_tiles, n_sums, args.call.H, args.call.K),
        ROWS=SHAPE["ROWS"],
        COLS=SHAPE["COLS"],
        **TABLE_SHAPE,
    )
    d_table = torch.empty(1, args.call.H, 1, W, dtype=table.dtype, device=table.device)
    held = triton.next_power_of_2(n_sums)
    _table_gradient_kernel[(args.call.H,)](
        *(sums, d_table, N // args.call.H * PARTS, n_sums, n_tiles, args.bias.reach),
        HELD=held,
        AT_ONCE=max(1, HELD // held),
        BLOCK=1024,
        num_warps=8,
    )
    return d_table


@triton.jit
def _query_gradients_kernel(  # noqa: PLR0915
    q_arg, k_arg, v_arg, d_out_arg, log_sum_ptr, delta_ptr, out_arg, d_q_arg, sums, bias, mask, call,
    C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    args, at = RelativeArgs(bias, mask, call), head_index(call.H)
    Q, K = call.Q, call.K
    row, rows, visible = query_rows(at, args, ROWS)
    table_ptr, own_ptr, slope = query_bias(rows, at, bias)
    tile = _query_tile(q_arg, d_out_arg, out_arg, log_sum_ptr, delta_ptr, row, at, Q, C, ROWS)
    k, v = head_vectors(k_arg, at), head_vectors(v_arg, at)
    tiles, lead, consecutive = query_tiles(row, visible, at, args, ROWS, COLS)
    lefts = tl.zeros([ROWS], tl.float32)
    n_near = tiles.n_near
    if C.HAS_TABLE and not C.PER_QUERY:
        base, strip_end = within_reach(lead, bias.reach, K, ROWS, COLS)
        strip_rows = at.n * tl.num_programs(0) * ROWS + rows
        strip_ptr = sums.strips_ptr + strip_rows[:, None] * sums.span + tl.arange(0, COLS)[None, :]
        _clear(strip_ptr, base, tl.where(consecutive, strip_end, 0), tiles, C.LEARNS and not C.NO_BOUNDS_CHECK, COLS)
        steps = diagonal_steps(ROWS, COLS)
        for i in tl.range(0, tl.where(consecutive, n_near, 0), num_stages=NEAR_STAGES):
            col = near_tile(i, tiles, COLS)
            keys = load_rows(k, col, K, C.E, COLS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
            d_scores = _near(tile, keys, v, col, table_ptr, col - lead, steps, slope, at, args, C, True, COLS)
            lefts = _store_tile(strip_ptr, d_scores.to(keys.dtype), lefts, col, base, strip_end, C)
            tile = _add(tile, d_scores, keys, C)
        n_near = tl.where(consecutive, 0, n_near)
    q_positions = load_positions(bias.q_ptr + at.batch * bias.q_b, bias.q_t, rows, Q)
    k_positions_ptr = bias.k_ptr + at.batch * bias.k_b
    copy = tl.program_id(0) % sums.copies
    sums_ptr = sums.sums_ptr + at.n * sums.sums_n + copy * sums.sums_c + sums.extra + rows * sums.sums_q
    for i in tl.range(0, n_near, num_stages=1 if C.HAS_TABLE else NEAR_STAGES):
        col = near_tile(i, tiles, COLS)
        cols = col + tl.arange(0, COLS)
        keys = load_rows(k, col, K, C.E, COLS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
        apart = load_positions(k_positions_ptr, bias.k_t, cols, K)[None, :] - q_positions[:, None]
        d_scores = _near(tile, keys, v, col, own_ptr[:, None], 0, apart, slope, at, args, C, False, COLS)
        if C.LEARNS:
            entries = tl.minimum(tl.maximum(apart, -bias.reach), bias.reach) + bias.reach
            real = (rows < Q)[:, None] & (cols < K)[None, :]
            tl.atomic_add(sums_ptr[:, None] + entries, d_scores, real, sem="relaxed")
        tile = _add(tile, d_scores, keys, C)
    if C.SKIP_FAR:
        far = tl.load(call.far_ptr + tl.num_programs(1) + at.n)
        tiles = skip_far(tiles, lead - far, lead + ROWS + far, COLS)
    ramp = tl.arange(0, ROWS).to(tl.float32) * slope
    less = tile.log_sum - end_entry(own_ptr, rows < Q, call.scale, C) + ramp
    tile, lefts = _far(
        tile, lefts, k, v, tiles.left, tiles.left_end, lead, less, slope, at, args, C, C.LEARNS, COLS
    )  # fmt: skip
    less = tile.log_sum - end_entry(own_ptr + 2 * bias.reach, rows < Q, call.scale, C) - ramp
    tile, rights = _far(
        tile, tl.zeros_like(lefts), k, v, tiles.right, tiles.right_end, lead, less, -slope, at, args, C,
        C.LEARNS and C.PER_QUERY, COLS,
    )  # fmt: skip
    if C.LEARNS and C.PER_QUERY:
        tl.atomic_add(sums_ptr, lefts, rows < Q, sem="relaxed")
        tl.atomic_add(sums_ptr + 2 * bias.reach, rights, rows < Q, sem="relaxed")
    elif C.LEARNS:
        tl.store(sums.lefts_ptr + at.n * tl.num_programs(0) + tl.program_id(0), tl.sum(lefts, 0))
    store_rows(head_vectors(d_q_arg, at), tile.d_q * call.scale, rows, Q, C.E, C.BLOCK_E)


@triton.jit
def _query_tile(
    q_arg, d_out_arg, out_arg, log_sum_ptr, delta_ptr, row, at, Q, C: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """Return a program's queries; writes the products of their outputs and the outputs' gradients."""
    BLOCK_E: tl.constexpr = C.BLOCK_E
    rows = row + tl.arange(0, ROWS)
    q = load_rows(head_vectors(q_arg, at), row, Q, C.E, ROWS, BLOCK_E, C.NO_BOUNDS_CHECK)
    d_out = load_rows(head_vectors(d_out_arg, at), row, Q, C.E3, ROWS, C.BLOCK_V, C.NO_BOUNDS_CHECK)
    out = load_rows(head_vectors(out_arg, at), row, Q, C.E3, ROWS, C.BLOCK_V, C.NO_BOUNDS_CHECK)
    delta = tl.sum(out.to(tl.float32) * d_out.to(tl.float32), 1)
    tl.store(delta_ptr + at.n * Q + rows, delta, rows < Q)
    log_sum = tl.load(log_sum_ptr + at.n * Q + rows, rows < Q, float("inf"))
    return QueryTile(rows, q, d_out, log_sum, delta, tl.zeros([ROWS, BLOCK_E], tl.float32))


@triton.jit
def _clear(strip_ptr, base, end, tiles, WANTED: tl.constexpr, COLS: tl.constexpr):
    """Write zeros to the part of the strip that is within the reach and never visited."""
    if WANTED:
        end_tile = tiles.low + tiles.n_near * COLS + (tiles.left_end - tiles.left) + (tiles.right_end - tiles.right)
        zeros = tl.zeros(strip_ptr.shape, strip_ptr.dtype.element_ty)
        for col in range(base, tl.minimum(tiles.low, end), COLS):
            tl.store(strip_ptr + (col - base), zeros)
        for col in range(tl.maximum(end_tile, base), end, COLS):
            tl.store(strip_ptr + (col - base), zeros)


@triton.jit
def _store_tile(strip_ptr, d_scores, lefts, col, base, end, C: tl.constexpr):
    """Write a tile of the strip; one beyond it, which was visited for its forbidden pairs, counts as far."""
    ptr = strip_ptr + (col - base)
    if C.LEARNS and C.NO_BOUNDS_CHECK:
        tl.store(ptr, d_scores)
    elif C.LEARNS:
        if (col >= base) & (col < end):
            tl.store(ptr, d_scores)
        lefts += tl.where(col < base, tl.sum(d_scores.to(tl.float32), 1), 0.0)
    return lefts


@triton.jit
def _near(
    tile, keys, v, col, table_ptr, first, apart, slope, at, args,
    C: tl.constexpr, CONSECUTIVE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Return the gradients of a tile of scores whose bias is looked up for each pair; see `near_scores`."""
    cols = col + tl.arange(0, COLS)
    scores = near_scores(
        tile.q, keys, tile.rows[:, None], cols[None, :], table_ptr, first, apart, slope, at, args, C, CONSECUTIVE
    )  # fmt: skip
    p = tl.exp2(scores - tile.log_sum[:, None])
    values = load_rows(v, col, args.call.K, C.E3, COLS, C.BLOCK_V, C.NO_BOUNDS_CHECK)
    return _score_gradients(tile, p, values, cols, at, args, C)


@triton.jit
def _far(
    tile, sums, k, v, begin, end, lead, less, slope, at, args,
    C: tl.constexpr, COUNTS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Return the queries with gradients added from one-sided tiles, and sums of the scores' if they count.

    The bias of such a tile is a number for each query and one for each key.
    """
    ramp = tl.arange(0, COLS).to(tl.float32) * slope
    for col in range(begin, end, COLS):
        cols = col + tl.arange(0, COLS)
        keys = load_rows(k, col, args.call.K, C.E, COLS, C.BLOCK_E, True)
        scores = tl.dot(tile.q, tl.trans(keys), input_precision=C.PRECISION) * (args.call.scale * LOG2E)
        here = less
        if C.HAS_SLOPE:
            here -= slope * (col - lead)
            scores += ramp[None, :]
        p = tl.exp2(scores - here[:, None])
        values = load_rows(v, col, args.call.K, C.E3, COLS, C.BLOCK_V, True)
        d_scores = _score_gradients(tile, p, values, cols, at, args, C)
        if COUNTS:
            sums += tl.sum(d_scores, 1)
        tile = _add(tile, d_scores, keys, C)
    return tile, sums


@triton.jit
def _score_gradients(tile, p, v, cols, at, args, C: tl.constexpr):
    """Return the gradients of a tile of scores from its weights."""
    d_p = tl.dot(tile.d_out, tl.trans(v), input_precision=C.PRECISION)
    if args.call.seed_ptr is not None:
        kept = dropout_mask(args.call, at.n, tile.rows[:, None] * args.call.K + cols[None, :])
        d_p = tl.where(kept, d_p / (1 - args.call.rate), 0.0)
    return p * (d_p - tile.delta[:, None])


@triton.jit
def _add(tile, d_scores, k, C: tl.constexpr):
    """Return the queries with gradients added from some keys."""
    d_q = tl.dot(d_scores.to(k.dtype), k, tile.d_q, input_precision=C.PRECISION)
    return QueryTile(tile.rows, tile.q, tile.d_out, tile.log_sum, tile.delta, d_q)


@triton.jit
def _sum_diagonals_kernel(
    sums_arg, bias, n_tiles, n_sums, H, K,
    ROWS: tl.constexpr, COLS: tl.constexpr, DIAGONALS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    n, reach, span = tl.program_id(2).to(tl.int64), bias.reach, sums_arg.span
    index = tl.program_id(0) * DIAGONALS + tl.arange(0, DIAGONALS)
    apart = index - sums_arg.extra - reach  # of key and query
    start, consecutive = lead_of(bias, n // H, 0, 0)
    strips_ptr = sums_arg.strips_ptr + n * n_tiles * ROWS * span
    sums = tl.zeros([STEP, DIAGONALS], tl.float32)
    if consecutive:
        for tile in range(tl.program_id(1), n_tiles, tl.num_programs(1)):
            lead = start + tile * ROWS
            base, end = within_reach(lead, reach, K, ROWS, COLS)
            for first in tl.static_range(0, ROWS, STEP):
                rows = first + tl.arange(0, STEP)
                cols = lead + rows[:, None] + apart[None, :]
                inside = (cols >= base) & (cols < end) & (apart < reach)[None, :]
                ptr = strips_ptr + tl.cast(tile, tl.int64) * ROWS * span
                sums += tl.load(ptr + (rows[:, None] * span + (cols - base)), inside, 0.0).to(tl.float32)
        index += tl.program_id(1) * n_sums
        tl.store(sums_arg.sums_ptr + n * tl.num_programs(1) * n_sums + index, tl.sum(sums, 0), apart <= reach)


@triton.jit
def _table_gradient_kernel(
    sums_arg, d_table_ptr, n_parts, n_sums, n_tiles, reach,
    HELD: tl.constexpr, AT_ONCE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head, H = tl.program_id(0), tl.num_programs(0)
    parts, extra = sums_arg.copies, sums_arg.extra
    index = tl.arange(0, HELD)
    sums = tl.zeros([AT_ONCE, HELD], tl.float32)
    for first in range(0, n_parts, AT_ONCE):
        part = first + tl.arange(0, AT_ONCE)
        ptr = sums_arg.sums_ptr + ((part // parts * H + head) * parts + part % parts).to(tl.int64)[:, None] * n_sums
        sums += tl.load(ptr + index[None, :], (part < n_parts)[:, None] & (index < n_sums)[None, :], 0.0)
    lefts = tl.zeros([BLOCK], tl.float32)
    n_lefts = n_parts // parts * n_tiles
    for first in range(0, n_lefts, BLOCK):
        i = first + tl.arange(0, BLOCK)
        lefts += tl.load(sums_arg.lefts_ptr + (i // n_tiles * H + head) * n_tiles + i % n_tiles, i < n_lefts, 0.0)
    total = tl.where(index < extra + 2 * reach, tl.sum(sums, 0), 0.0)
    left = tl.sum(tl.where(index <= extra, total, 0.0), 0) + tl.sum(lefts, 0)
    total = tl.where(index > extra, total, 0.0)
    gradient = tl.where(index == extra, left, total)
    gradient = tl.where(index == extra + 2 * reach, -left - tl.sum(total, 0), gradient)
    entries = index - extra
    ptr = d_table_ptr + head * (2 * reach + 1) + entries
    tl.store(ptr, gradient.to(d_table_ptr.dtype.element_ty), (entries >= 0) & (entries <= 2 * reach))
