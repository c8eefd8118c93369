"""Flash attention with a bias by offset."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import (
    block_size,
    broadcast_strides,
    contiguous_rows,
    dot_precision,
    dropout_args,
    dropout_mask,
    head_args,
    head_ptr,
    mask_args,
)
from regard.kernels.relative_backward import gradients
from regard.kernels.relative_tiles import (
    LOG2E,
    BiasArgs,
    CallArgs,
    Constants,
    RelativeArgs,
    Vectors,
    diagonal_steps,
    end_entry,
    first_positions,
    head_index,
    head_vectors,
    load_positions,
    load_rows,
    near_scores,
    near_tile,
    position_args,
    query_bias,
    query_rows,
    query_tiles,
    skip_far,
    store_rows,
)
from regard.mask import Mask
from regard.position.contract import OffsetBias

SHAPES = {
    # Registers for positions that are not consecutive must not keep a third program off a multiprocessor.
    "table": {"ROWS": 64, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3, "maxnreg": 168},
    "slopes": {"ROWS": 128, "COLS": 64, "NEAR_STAGES": 2, "num_warps": 4, "num_stages": 3},
}
NORM_ROWS = 64  # keys of one program of `_key_norms_kernel`
# Entries by which a table is padded at either end: more than the sides of a tile.
EDGE = 512
# Below 2⁻³² of the greatest weight; as weights fall with distance, all that is left out stays below 2⁻²⁴ of a row.
BITS = tl.constexpr(32.0)
FARTHEST = tl.constexpr(1e9)


class RunningSoftmax(NamedTuple):
    """Of each query the highest score so far, the sum of weights relative to it, and the values mixed by them."""

    highest: tl.tensor
    total: tl.tensor
    mixed: tl.tensor


def relative_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: OffsetBias, scale: float, dropout: float
) -> Tensor:
    """Return `softmax(scale · q kᵀ + bias) v`, (B, H, Q, E3), as flash attention does (arXiv:2205.14135).

    Tiles of consecutive tokens that lie beyond the table's reach, or wholly on one side, have no bias for single pairs:
    it costs nothing there. Those that a slope alone takes too far down for any weight in float32 are left out.
    """
    assert scale > 0.0, f"the largest product must be the largest score, so the scale must be positive, got {scale}"
    return _RelativeAttention.apply(q, k, v, bias.table, bias, mask, scale, dropout)  # pyright: ignore


class _RelativeAttention(torch.autograd.Function):
    """Saves its inputs, the output and one number for each query."""

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
        q, k, v = (contiguous_rows(x) for x in (q, k, v))
        (B, H, Q, _), (K, E3) = q.shape, v.shape[2:]
        out = torch.empty(B, Q, H, E3, dtype=v.dtype, device=v.device).transpose(1, 2)
        log_sum = torch.empty(B * H, Q, dtype=torch.float32, device=v.device)
        constants = _constants(q, v, mask, bias)
        seed, rate = dropout_args(dropout, v.device)
        biased = _bias_args(bias, scale, constants)
        call = CallArgs(seed, rate, _key_norms(k) if constants.SKIP_FAR else None, H, Q, K, scale)
        ctx.args = RelativeArgs(biased, mask_args(mask, q.device), call)
        shape = SHAPES["table" if constants.HAS_TABLE else "slopes"]
        _attend_kernel[triton.cdiv(Q, shape["ROWS"]), B * H](
            *(head_args(q), head_args(k), head_args(v), head_args(out), log_sum, *ctx.args), C=constants, **shape
        )
        ctx.save_for_backward(q, k, v, table, out, log_sum)
        ctx.constants = constants
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        grads = gradients(ctx.saved_tensors, d_out, ctx.needs_input_grad[3], ctx.args, ctx.constants)
        return *grads, None, None, None, None


def _constants(q: Tensor, v: Tensor, mask: Mask, bias: OffsetBias) -> Constants:
    table, E, (K, E3) = bias.table, q.shape[3], v.shape[2:]
    rules = (mask.key_lengths, mask.query_lengths, mask.window, mask.allowed)
    unmasked = not mask.causal and all(rule is None for rule in rules)
    return Constants(
        HAS_TABLE=table is not None,
        PER_QUERY=table is not None and (table.shape[0] > 1 or table.shape[2] > 1),
        HAS_SLOPE=bias.slopes is not None,
        SKIP_FAR=bias.slopes is not None and table is None,
        NO_BOUNDS_CHECK=unmasked and q.shape[2] % 128 == K % 128 == 0,
        HARDWARE=q.is_cuda,
        LEARNS=False,
        PRECISION=dot_precision(q.dtype),
        E=E,
        BLOCK_E=block_size(E),
        E3=E3,
        BLOCK_V=block_size(E3),
    )


def _bias_args(bias: OffsetBias, scale: float, constants: Constants) -> BiasArgs:
    firsts = first_positions(bias.q_positions, bias.k_positions)
    slopes = None if bias.slopes is None else bias.slopes.float()
    table, b, h, q = firsts, 0, 0, 0  # numbers never read stand in for a table
    if bias.table is not None:
        table = bias.table.float().contiguous() if constants.PER_QUERY else _padded(bias.table, scale)
        b, h, q, _ = broadcast_strides(table)
    of_q, of_k = position_args(bias.q_positions), position_args(bias.k_positions)
    return BiasArgs(*of_q, *of_k, firsts, firsts.shape[1], table, b, h, q, slopes, bias.max_offset)


def _padded(table: Tensor, scale: float) -> Tensor:
    """Return a table that all queries share, (1, H, 1, W), to start products from; its ends go on in memory."""
    W = table.shape[3]
    entries = torch.nn.functional.pad(table[:, :, 0].float() * (1.0 / scale), (EDGE, EDGE), mode="replicate")
    return entries[:, :, None, EDGE : EDGE + W]


def _key_norms(k: Tensor) -> Tensor:
    """Return the norm of each head's longest key as the bits of a float32, and room for distances: (2, B · H)."""
    B, H, K, E = k.shape
    norms = torch.zeros(2, B * H, dtype=torch.int32, device=k.device)
    grid = triton.cdiv(K, NORM_ROWS), B * H
    _key_norms_kernel[grid](head_args(k), norms, H, K, E, BLOCK_E=block_size(E), ROWS=NORM_ROWS, num_warps=4)
    return norms


@triton.jit
def _key_norms_kernel(k, norms_ptr, H, K, E: tl.constexpr, BLOCK_E: tl.constexpr, ROWS: tl.constexpr):
    n = tl.program_id(1)
    keys = Vectors(head_ptr(k, (n // H).to(tl.int64), n % H), k.stride_t)
    norms = _norms(load_rows(keys, tl.program_id(0) * ROWS, K, E, ROWS, BLOCK_E, False))
    # Numbers that are not negative are in the order of their bits.
    tl.atomic_max(norms_ptr + n, tl.max(norms, 0).to(tl.int32, bitcast=True), sem="relaxed")


@triton.jit
def _norms(x):
    x = x.to(tl.float32)
    return tl.sqrt(tl.sum(x * x, 1))


@triton.jit
def _farthest(q, highest, real, slope, norm_ptr, scale):
    """Return the greatest distance at which a key may have a weight, of queries whose highest score so far is known.

    By Cauchy and Schwarz no product of a query exceeds `bound`, and the slope takes the more off it, the farther away a
    key is.
    """
    bound = _norms(q) * tl.load(norm_ptr).to(tl.float32, bitcast=True) * (scale * LOG2E) + BITS
    distance = tl.where(slope > 0.0, tl.minimum((bound - highest) / slope, FARTHEST), FARTHEST)
    return tl.max(tl.where(real, distance, 0.0), 0).to(tl.int32) + 1


@triton.jit
def _attend_kernel(
    q_arg, k_arg, v_arg, out_arg, log_sum_ptr, bias, mask, call,
    C: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, NEAR_STAGES: tl.constexpr,
):  # fmt: skip
    args, at = RelativeArgs(bias, mask, call), head_index(call.H)
    Q, K = call.Q, call.K
    row, rows, visible = query_rows(at, args, ROWS)
    table_ptr, own_ptr, slope = query_bias(rows, at, bias)
    q = load_rows(head_vectors(q_arg, at), row, Q, C.E, ROWS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
    k, v = head_vectors(k_arg, at), head_vectors(v_arg, at)
    tiles, lead, consecutive = query_tiles(row, visible, at, args, ROWS, COLS)
    state = _empty_softmax(C, ROWS)
    n_near = tiles.n_near
    if C.HAS_TABLE and not C.PER_QUERY:
        steps = diagonal_steps(ROWS, COLS)
        for i in tl.range(0, tl.where(consecutive, n_near, 0), num_stages=NEAR_STAGES):
            col = near_tile(i, tiles, COLS)
            keys = load_rows(k, col, K, C.E, COLS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
            state = _mix_near(
                state, q, keys, v, rows, col, table_ptr, col - lead, steps, slope, at, args, C, True, COLS
            )  # fmt: skip
        n_near = tl.where(consecutive, 0, n_near)
    q_positions = load_positions(bias.q_ptr + at.batch * bias.q_b, bias.q_t, rows, Q)
    k_positions_ptr = bias.k_ptr + at.batch * bias.k_b
    for i in tl.range(0, n_near, num_stages=1 if C.HAS_TABLE else NEAR_STAGES):
        col = near_tile(i, tiles, COLS)
        keys = load_rows(k, col, K, C.E, COLS, C.BLOCK_E, C.NO_BOUNDS_CHECK)
        k_positions = load_positions(k_positions_ptr, bias.k_t, col + tl.arange(0, COLS), K)
        apart = k_positions[None, :] - q_positions[:, None]
        state = _mix_near(
            state, q, keys, v, rows, col, own_ptr[:, None], 0, apart, slope, at, args, C, False, COLS
        )  # fmt: skip
    if C.SKIP_FAR:
        far = _farthest(q, state.highest, visible.low < visible.high, slope, call.far_ptr + at.n, call.scale)
        tl.atomic_max(call.far_ptr + tl.num_programs(1) + at.n, far, sem="relaxed")
        tiles = skip_far(tiles, lead - far, lead + ROWS + far, COLS)
    ramp = tl.arange(0, ROWS).to(tl.float32) * slope
    term = end_entry(own_ptr, rows < Q, call.scale, C) - ramp
    state = _mix_far(state, q, k, v, rows, tiles.left, tiles.left_end, lead, term, slope, at, args, C, COLS)
    term = end_entry(own_ptr + 2 * bias.reach, rows < Q, call.scale, C) + ramp
    state = _mix_far(state, q, k, v, rows, tiles.right, tiles.right_end, lead, term, -slope, at, args, C, COLS)
    empty = state.total == 0.0
    total = tl.where(empty, 1.0, state.total)
    # +∞ for a query that sees no key, so that all its weights are zeros in the backward pass.
    log_sum = tl.where(empty, float("inf"), state.highest + tl.log2(total))
    tl.store(log_sum_ptr + at.n * Q + rows, log_sum, rows < Q)
    mixed = state.mixed / (total * (1 - call.rate))[:, None]
    store_rows(head_vectors(out_arg, at), mixed, rows, Q, C.E3, C.BLOCK_V)


@triton.jit
def _empty_softmax(C: tl.constexpr, ROWS: tl.constexpr):
    BLOCK_V: tl.constexpr = C.BLOCK_V
    highest = tl.full([ROWS], -1e20, tl.float32)  # far above what stands for a forbidden score
    return RunningSoftmax(highest, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, BLOCK_V], tl.float32))


@triton.jit
def _mix_near(
    state, q, keys, v, rows, col, table_ptr, first, apart, slope, at, args,
    C: tl.constexpr, CONSECUTIVE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Mix in a tile whose bias is looked up for each pair; see `near_scores`."""
    cols = col + tl.arange(0, COLS)
    scores = near_scores(
        q, keys, rows[:, None], cols[None, :], table_ptr, first, apart, slope, at, args, C, CONSECUTIVE
    )  # fmt: skip
    values = load_rows(v, col, args.call.K, C.E3, COLS, C.BLOCK_V, C.NO_BOUNDS_CHECK)
    higher = tl.maximum(state.highest, tl.max(scores, 1))
    return _mix(state, higher, tl.exp2(scores - higher[:, None]), values, rows, cols, at, args, C)


@triton.jit
def _mix_far(
    state, q, k, v, rows, begin, end, lead, term, slope, at, args, C: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """Mix in one-sided tiles: their bias is a number for each query, and one for each key.

    The queries' part goes into the maximum, so that it costs nothing for single pairs.
    """
    ramp = tl.arange(0, COLS).to(tl.float32) * slope
    factor = args.call.scale * LOG2E
    for col in range(begin, end, COLS):
        cols = col + tl.arange(0, COLS)
        keys = load_rows(k, col, args.call.K, C.E, COLS, C.BLOCK_E, True)
        scores = tl.dot(q, tl.trans(keys), input_precision=C.PRECISION)
        if C.HAS_SLOPE:
            here = term + slope * (col - lead)
            scores = scores * factor + ramp[None, :]
            higher = tl.maximum(state.highest, tl.max(scores, 1) + here)
            p = tl.exp2(scores - (higher - here)[:, None])
        else:
            higher = tl.maximum(state.highest, tl.max(scores, 1) * factor + term)
            p = tl.exp2(scores * factor - (higher - term)[:, None])
        values = load_rows(v, col, args.call.K, C.E3, COLS, C.BLOCK_V, True)
        state = _mix(state, higher, p, values, rows, cols, at, args, C)
    return state


@triton.jit
def _mix(state, higher, p, v, rows, cols, at, args, C: tl.constexpr):
    """Return the softmax with values added by their weights, which are relative to a maximum not below its own."""
    rescale = tl.exp2(state.highest - higher)
    total = state.total * rescale + tl.sum(p, 1)
    if args.call.seed_ptr is not None:
        p = tl.where(dropout_mask(args.call, at.n, rows[:, None] * args.call.K + cols[None, :]), p, 0.0)
    mixed = tl.dot(p.to(v.dtype), v, state.mixed * rescale[:, None], input_precision=C.PRECISION)
    return RunningSoftmax(higher, total, mixed)
