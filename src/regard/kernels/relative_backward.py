"""Gradients of attention with a bias by offset; those of keys and values are computed here.

A program owns some keys and goes through the queries that may see them. In tiles keys come before queries.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels import relative_grad_q
from regard.kernels.primitives import (
    contiguous_rows,
    dropout_mask,
    end_query,
    first_query,
    head_args,
    unmasked_queries,
)
from regard.kernels.relative_tiles import (
    LOG2E,
    Constants,
    RelativeArgs,
    end_entry,
    head_index,
    head_vectors,
    lead_of,
    load_positions,
    load_rows,
    load_slope,
    near_scores,
    near_tile,
    skip_far,
    split_tiles,
    store_rows,
)

SHAPE = {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 1, "num_warps": 4, "num_stages": 2}


class KeyTile(NamedTuple):
    """A program's keys, what they are, and the gradients so far."""

    cols: tl.tensor
    k: tl.tensor
    v: tl.tensor
    d_k: tl.tensor
    d_v: tl.tensor


class QueryRows(NamedTuple):
    """A head's queries and all that is known of each."""

    q: tl.tensor
    d_out: tl.tensor
    log_sum_ptr: tl.tensor
    delta_ptr: tl.tensor


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, table_learns: bool, args: RelativeArgs, constants: Constants
) -> tuple[Tensor | None, ...]:
    """Return the gradients of queries, keys, values, and of the table if it learns."""
    q, k, v, table, out, log_sum = saved
    d_out = contiguous_rows(d_out.to(out.dtype))
    d_q, d_k, d_v = (torch.empty_like(x) for x in (q, k, v))
    delta = torch.empty_like(log_sum)
    given = (*map(head_args, (q, k, v, d_out)), log_sum, delta)
    learns = table_learns and table.shape[3] > 1  # the only entry of a table shifts all scores alike
    sums = relative_grad_q.query_gradients(given, out, d_q, table if learns else None, args, constants)
    B, H, K, _ = k.shape
    _key_gradients_kernel[triton.cdiv(K, SHAPE["COLS"]), B * H](
        *(*given, head_args(d_k), head_args(d_v), *args), C=constants, **SHAPE
    )
    if learns:
        return d_q, d_k, d_v, relative_grad_q.table_gradient(sums, table, args, constants)
    return d_q, d_k, d_v, torch.zeros_like(table) if table_learns else None


@triton.jit
def _key_gradients_kernel(
    q_arg, k_arg, v_arg, d_out_arg, log_sum_ptr, delta_ptr, d_k_arg, d_v_arg, bias, mask, call,
    C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    args, at = RelativeArgs(bias, mask, call), head_index(call.H)
    Q, K = call.Q, call.K
    col = tl.program_id(0) * COLS
    table_ptr = bias.table_ptr + at.batch * bias.table_b + at.head * bias.table_h
    slope = load_slope(bias, at.head)
    tile = _key_tile(head_vectors(k_arg, at), head_vectors(v_arg, at), col, K, C, COLS)
    queries = QueryRows(
        head_vectors(q_arg, at), head_vectors(d_out_arg, at), log_sum_ptr + at.n * Q, delta_ptr + at.n * Q
    )  # fmt: skip
    tiles, lead, consecutive = _key_tiles(col, at, args, ROWS, COLS)
    n_near = tiles.n_near
    if C.HAS_TABLE and not C.PER_QUERY:
        steps = tl.arange(0, COLS).to(tl.int64)[:, None] - tl.arange(0, ROWS).to(tl.int64)[None, :]
        for i in tl.range(0, tl.where(consecutive, n_near, 0), num_stages=NEAR_STAGES):
            row = near_tile(i, tiles, ROWS)
            q = load_rows(queries.q, row, Q, C.E, ROWS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
            tile = _near(tile, queries, q, row, table_ptr, -lead - row, steps, slope, at, args, C, True, ROWS)
        n_near = tl.where(consecutive, 0, n_near)
    k_positions = load_positions(bias.k_ptr + at.batch * bias.k_b, bias.k_t, tile.cols, K)
    q_positions_ptr = bias.q_ptr + at.batch * bias.q_b
    for i in tl.range(0, n_near, num_stages=1 if C.HAS_TABLE else NEAR_STAGES):
        row = near_tile(i, tiles, ROWS)
        rows = row + tl.arange(0, ROWS)
        q = load_rows(queries.q, row, Q, C.E, ROWS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
        apart = k_positions[:, None] - load_positions(q_positions_ptr, bias.q_t, rows, Q)[None, :]
        own_ptr = (table_ptr + rows * bias.table_q)[None, :]
        tile = _near(tile, queries, q, row, own_ptr, 0, apart, slope, at, args, C, False, ROWS)
    if C.SKIP_FAR:
        far = tl.load(call.far_ptr + tl.num_programs(1) + at.n)
        tiles = skip_far(tiles, -lead - far, COLS - lead + far, ROWS)
    # Queries that stand before the keys, for which the keys are on the right, then queries that stand behind.
    end_ptr = table_ptr + 2 * bias.reach
    tile = _far(tile, queries, tiles.left, tiles.left_end, end_ptr, lead, -slope, at, args, C, ROWS, COLS)
    tile = _far(tile, queries, tiles.right, tiles.right_end, table_ptr, lead, slope, at, args, C, ROWS, COLS)
    store_rows(head_vectors(d_k_arg, at), tile.d_k * call.scale, tile.cols, K, C.E, C.BLOCK_E)
    store_rows(head_vectors(d_v_arg, at), tile.d_v, tile.cols, K, C.E3, C.BLOCK_V)


@triton.jit
def _key_tile(k, v, col, K, C: tl.constexpr, COLS: tl.constexpr):
    BLOCK_E: tl.constexpr = C.BLOCK_E
    BLOCK_V: tl.constexpr = C.BLOCK_V
    return KeyTile(
        col + tl.arange(0, COLS),
        load_rows(k, col, K, C.E, COLS, BLOCK_E, C.NO_BOUNDS_CHECK),
        load_rows(v, col, K, C.E3, COLS, BLOCK_V, C.NO_BOUNDS_CHECK),
        tl.zeros([COLS, BLOCK_E], tl.float32),
        tl.zeros([COLS, BLOCK_V], tl.float32),
    )


@triton.jit
def _key_tiles(col, at, args, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return the tiles of queries that see some keys; how far the first is ahead; whether tokens are consecutive."""
    mask, Q, K, reach = args.mask, args.call.Q, args.call.K, args.bias.reach
    end = end_query(tl.minimum(col + COLS, K) - 1, Q, mask)
    if mask.ends_ptr is not None:
        end = tl.minimum(end, tl.load(mask.ends_ptr + at.batch).to(tl.int32))
    if mask.lengths_ptr is not None:
        length = tl.load(mask.lengths_ptr + at.batch * mask.lengths_b).to(tl.int32)
        end = tl.where((mask.lengths_q == 0) & (col >= length), 0, end)
    unmasked_low, unmasked_end = unmasked_queries(col, col + COLS, at.batch, Q, K, mask)
    lead, consecutive = lead_of(args.bias, at.batch, 0, col)
    tiles = split_tiles(
        first_query(col, mask), end, unmasked_low, tl.where(consecutive, unmasked_end, 0),
        1 - lead - reach, COLS - 1 - lead + reach, ROWS,
    )  # fmt: skip
    return tiles, lead, consecutive


@triton.jit
def _near(
    tile, queries, q, row, table_ptr, first, apart, slope, at, args,
    C: tl.constexpr, CONSECUTIVE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Add to the gradients from a tile whose bias is looked up for each pair; see `near_scores`."""
    rows, Q = row + tl.arange(0, ROWS), args.call.Q
    scores = near_scores(
        tile.k, q, rows[None, :], tile.cols[:, None], table_ptr, first, apart, slope, at, args, C, CONSECUTIVE
    )  # fmt: skip
    p = tl.exp2(scores - tl.load(queries.log_sum_ptr + rows, rows < Q, float("inf"))[None, :])
    d_out = load_rows(queries.d_out, row, Q, C.E3, ROWS, C.BLOCK_V, C.NO_BOUNDS_CHECK)
    delta = tl.load(queries.delta_ptr + rows, rows < Q, 0.0)
    return _add(tile, p, q, d_out, delta, rows, at, args, C)


@triton.jit
def _far(
    tile, queries, begin, end, table_ptr, lead, slope, at, args,
    C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Add to the gradients from one-sided tiles: their bias is a number for each query, and one for each key.

    The queries' part goes into what is subtracted from their scores anyway.
    """
    ramp = tl.arange(0, COLS).to(tl.float32) * slope
    factor = args.call.scale * LOG2E
    term = 0.0
    if C.HAS_TABLE and not C.PER_QUERY:
        term = tl.load(table_ptr) * factor
    for row in range(begin, end, ROWS):
        rows = row + tl.arange(0, ROWS)
        q = load_rows(queries.q, row, args.call.Q, C.E, ROWS, C.BLOCK_E, True)
        scores = tl.dot(tile.k, tl.trans(q), input_precision=C.PRECISION)
        less = tl.load(queries.log_sum_ptr + rows) - term
        if C.PER_QUERY:
            less -= end_entry(table_ptr + rows * args.bias.table_q, rows >= 0, args.call.scale, C)
        if C.HAS_SLOPE:
            less += slope * (rows + lead).to(tl.float32)
            p = tl.exp2(scores * factor + ramp[:, None] - less[None, :])
        else:
            p = tl.exp2(scores * factor - less[None, :])
        d_out = load_rows(queries.d_out, row, args.call.Q, C.E3, ROWS, C.BLOCK_V, True)
        tile = _add(tile, p, q, d_out, tl.load(queries.delta_ptr + rows), rows, at, args, C)
    return tile


@triton.jit
def _add(tile, p, q, d_out, delta, rows, at, args, C: tl.constexpr):
    """Return the keys with gradients added from some queries and their weights, keys by queries."""
    d_p = tl.dot(tile.v, tl.trans(d_out), input_precision=C.PRECISION)
    dropped = p
    if args.call.seed_ptr is not None:
        kept = dropout_mask(args.call, at.n, rows[None, :] * args.call.K + tile.cols[:, None])
        dropped = tl.where(kept, p / (1 - args.call.rate), 0.0)
        d_p = tl.where(kept, d_p / (1 - args.call.rate), 0.0)
    d_v = tl.dot(dropped.to(d_out.dtype), d_out, tile.d_v, input_precision=C.PRECISION)
    d_scores = p * (d_p - delta[None, :])
    d_k = tl.dot(d_scores.to(q.dtype), q, tile.d_k, input_precision=C.PRECISION)
    return KeyTile(tile.cols, tile.k, tile.v, d_k, d_v)
