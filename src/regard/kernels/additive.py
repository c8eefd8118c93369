"""Additive attention of many queries: scores of some at a time, the softmax that mixes values by them, and gradients.

The scores are where the time goes: the GPU's tanh is slower than all else by a factor of eight. So their kernel does
nothing else. It has no matrix product inside, whose layout the tile would have to take, and a thread's four queries
come by one load.

The gradients of the scores need the scores once more, and those of the features another tanh for each pair. A thread of
that kernel owns a feature: it goes through pairs with nothing to be added across threads, and adds each key's sum over
its queries to memory atomically.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.autograd import once_differentiable
from regard.kernels.primitives import (
    DropoutArgs,
    MaskArgs,
    allowed_pairs,
    block_size,
    compute_dtype,
    delta,
    dot_precision,
    dropout_args,
    dropout_mask,
    key_range,
    mask_args,
    tanh,
)
from regard.mask import Mask

# Pairs whose scores are in memory at a time; but so many queries at least, to keep a GPU busy.
PAIRS, BUSY = 2**22, 2048
# Features whose loads are in flight together, and tokens that go together: both are padded to multiples.
AT_ONCE, TOGETHER = 8, 128
SIDE = 64  # of the square tiles that are transposed
SCORE_SHAPE = {"KEYS": 16, "QUERIES": 128, "num_warps": 4, "num_stages": 1}
# A thread has one feature of each query in its registers, and so many sums; programs are no wider than features are.
FEATURES_SHAPE = {"ROWS": 16, "COLS": 256, "num_stages": 1}
Features = tuple[Tensor, Tensor, Tensor]  # of queries, of keys, and w


class Chunk(NamedTuple):
    """The first head of those whose scores are in memory, their first query, and the number of their queries."""

    first: int
    start: int
    size: int


class PairArgs(NamedTuple):
    """Heads, queries, keys, and the padded sizes (keys, queries) of a head's scores in memory."""

    H: int
    Q: int
    K: int
    keys: int
    step: int


def by_feature(q: Tensor, k: Tensor, w: Tensor) -> Features:
    """Return queries (N, F, Q), keys (N, F, K) and w (H, F) in float32, padded with features of weight 0."""
    return _transposed(q), _transposed(k), torch.nn.functional.pad(w, (0, -w.shape[1] % AT_ONCE))


def _transposed(x: Tensor) -> Tensor:
    N, T, F = x.shape
    size = (N, F + -F % AT_ONCE, T + -T % TOGETHER)
    out = torch.empty(size, dtype=torch.float32, device=x.device)
    grid = triton.cdiv(size[2], SIDE), triton.cdiv(size[1], SIDE), N
    _transpose_kernel[grid](x, out, T, F, *size[1:], SIDE=SIDE, num_warps=4)
    return out


def chunks(N: int, Q: int, K: int) -> Iterator[tuple[int, Chunk]]:
    """Yield how many heads are done at a time, as many as there is room for, and which of their queries."""
    n_rows = min(Q, max(BUSY, PAIRS // max(1, K) // TOGETHER * TOGETHER))
    n_heads = max(1, PAIRS // max(1, n_rows * K))
    for first in range(0, N, n_heads):
        for start in range(0, Q, n_rows):
            yield min(n_heads, N - first), Chunk(first, start, min(n_rows, Q - start))


def score(features: Features, n: int, chunk: Chunk, K: int, mask: MaskArgs, hardware: bool) -> Tensor:
    """Return scores (n, K, q) in float32, key by key; padding and tiles that no query may see are undefined."""
    f_q, f_k, w = features
    size = (n, f_k.shape[2], chunk.size + -chunk.size % TOGETHER)
    scores = torch.empty(size, dtype=torch.float32, device=w.device)
    _score_kernel[triton.cdiv(size[2], SCORE_SHAPE["QUERIES"]), triton.cdiv(K, SCORE_SHAPE["KEYS"]), n](
        *(f_q, f_k, w, scores, mask, chunk, PairArgs(len(w), f_q.shape[2], K, *size[1:]), w.shape[1]),
        HARDWARE=hardware,
        AT_ONCE=AT_ONCE,
        **SCORE_SHAPE,
    )
    return scores


@triton.jit
def _transpose_kernel(x_ptr, out_ptr, T, F, features, tokens, SIDE: tl.constexpr):
    n = tl.program_id(2).to(tl.int64)
    rows, cols = tl.program_id(0) * SIDE + tl.arange(0, SIDE), tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = (rows < T)[:, None] & (cols < F)[None, :]
    x = tl.load(x_ptr + n * T * F + rows[:, None] * F + cols[None, :], inside, 0.0)
    ptr = out_ptr + n * features * tokens + cols[None, :] * tokens + rows[:, None]
    tl.store(ptr, x.to(tl.float32), (cols < features)[None, :])


@triton.jit
def chunk_rows(chunk, mask, H, K, AXIS: tl.constexpr, ROWS: tl.constexpr):
    """Return a program's head, within the chunk and of all; its queries, likewise; and their ranges of keys."""
    local = tl.program_id(AXIS).to(tl.int64)
    n = local + chunk.first
    index = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows = chunk.start + index
    low, high = key_range(rows, n // H, chunk.start + chunk.size, K, mask)
    return local, n, index, rows, low, high


@triton.jit
def _score_kernel(
    q_ptr, k_ptr, w_ptr, scores_ptr, mask, chunk, pairs, F,
    HARDWARE: tl.constexpr, AT_ONCE: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    H, queries, K, keys, step = pairs  # here queries are counted with their padding
    local, n, index, _, low, high = chunk_rows(chunk, mask, H, K, 2, QUERIES)
    cols = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    if (tl.max(high, 0) > tl.min(cols, 0)) & (tl.min(low, 0) <= tl.max(cols, 0)):
        q_ptr += n * F * queries + chunk.start
        k_ptr += n * F * keys
        w_ptr += n % H * F
        scores = tl.zeros([KEYS, QUERIES], tl.float32)
        for first in range(0, F, AT_ONCE):
            for i in tl.static_range(AT_ONCE):
                q = tl.load(q_ptr + (first + i) * queries + index)
                k = tl.load(k_ptr + (first + i) * keys + cols)
                scores += tl.load(w_ptr + first + i) * tanh(k[:, None] + q[None, :], HARDWARE)
        tl.store(scores_ptr + local * keys * step + cols[:, None] * step + index[None, :], scores)


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, mask: Mask, dropout: DropoutArgs, hardware: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of queries (N, Q, F), keys (N, K, F), w (H, F) and values (N, K, E).

    All but the queries' are in float32, as they are added up.
    """
    q, k, w, v, out, log_sum = saved
    (N, Q, _), K = q.shape, k.shape[1]
    deltas = delta(out[:, None], d_out[:, None])
    d_q = torch.empty_like(q)
    d_k, d_w, d_v = (torch.zeros(x.shape, dtype=torch.float32, device=q.device) for x in (k, w, v))
    features, args = by_feature(q, k, w), mask_args(mask, q.device)
    for n, chunk in chunks(N, Q, K):
        heads = slice(chunk.first, chunk.first + n)
        d_rows = d_out[heads, chunk.start : chunk.start + chunk.size]
        d_scores = score(features, n, chunk, K, args, hardware)
        p = torch.bmm(v[heads], d_rows.transpose(1, 2))  # the weights' gradients (n, K, q), which the weights overwrite
        pairs = PairArgs(len(w), Q, K, *d_scores.shape[1:])
        _score_gradients(d_scores, p, log_sum, deltas, args, dropout, chunk, pairs)
        d_v[heads] += _product(p, d_rows)
        _feature_gradients((q, k, w), d_scores, (d_q, d_k, d_w), args, chunk, pairs, hardware)
    return d_q, d_k, d_w, d_v


def _score_gradients(
    scores: Tensor,
    d_p: Tensor,
    log_sum: Tensor,
    deltas: Tensor,
    mask: MaskArgs,
    dropout: DropoutArgs,
    chunk: Chunk,
    pairs: PairArgs,
) -> None:
    """Turn scores (n, K, q) into their gradients, zeros in the padding, and the weights' gradients into weights.

    The weights come dropped out.
    """
    grid = triton.cdiv(pairs.step, SCORE_SHAPE["QUERIES"]), triton.cdiv(pairs.keys, SCORE_SHAPE["KEYS"]), len(d_p)
    _score_gradients_kernel[grid](scores, d_p, log_sum, deltas, mask, dropout, chunk, pairs, **SCORE_SHAPE)


def _feature_gradients(
    features: Features,
    d_scores: Tensor,
    sums: Features,
    mask: MaskArgs,
    chunk: Chunk,
    pairs: PairArgs,
    hardware: bool,
) -> None:
    """Write these rows' gradients of queries, and add to those of keys and of w."""
    F = features[2].shape[1]
    shape = FEATURES_SHAPE | {"COLS": min(FEATURES_SHAPE["COLS"], max(64, triton.next_power_of_2(F)))}
    _feature_gradients_kernel[triton.cdiv(chunk.size, shape["ROWS"]), triton.cdiv(F, shape["COLS"]), len(d_scores)](
        *(*features, d_scores, *sums, mask, chunk, pairs, F),
        WHOLE=F % shape["COLS"] == 0,
        HARDWARE=hardware,
        num_warps=shape["COLS"] // 32,
        **shape,
    )


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda and a.dtype.itemsize == 2 else torch.bmm(a, b)


@triton.jit
def _score_gradients_kernel(
    scores_ptr, d_p_ptr, log_sum_ptr, delta_ptr, mask, dropout, chunk, pairs,
    KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    H, Q, K, keys, step = pairs
    local, n, index, rows, low, high = chunk_rows(chunk, mask, H, K, 2, QUERIES)
    size, end = chunk.size, chunk.start + chunk.size
    cols = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    allowed = allowed_pairs(
        rows[None, :], cols[:, None], low[None, :], high[None, :], n // H, n % H, end, K, mask
    )  # fmt: skip
    log_sum = tl.load(log_sum_ptr + n * Q + rows, rows < end, float("inf"))
    delta = tl.load(delta_ptr + n * Q + rows, rows < end, 0.0)
    scores_ptr += local * keys * step + cols[:, None] * step + index[None, :]
    scores = tl.where(allowed, tl.load(scores_ptr), -1e30)
    p = tl.exp(scores - log_sum[None, :])
    d_p_ptr += local * K * size + cols[:, None] * size + index[None, :]
    inside = (cols < K)[:, None] & (index < size)[None, :]
    d_p = tl.load(d_p_ptr, inside, 0.0).to(tl.float32)
    dropped = p
    if dropout.seed_ptr is not None:
        kept = dropout_mask(dropout, n, rows[None, :] * K + cols[:, None])
        d_p = tl.where(kept, d_p / (1 - dropout.rate), 0.0)
        dropped = tl.where(kept, p / (1 - dropout.rate), 0.0)
    tl.store(scores_ptr, p * (d_p - delta[None, :]))
    tl.store(d_p_ptr, dropped.to(d_p_ptr.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["F"])  # a feature a thread, not several: what F divides by must not be known
def _feature_gradients_kernel(
    q_ptr, k_ptr, w_ptr, d_scores_ptr, d_q_ptr, d_k_ptr, d_w_ptr, mask, chunk, pairs, F,
    HARDWARE: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    H, Q, K, keys, step = pairs
    local, n, index, rows, low, high = chunk_rows(chunk, mask, H, K, 2, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    in_cols = (cols < F) | WHOLE
    inside = (rows < chunk.start + chunk.size)[:, None] & in_cols[None, :]
    at = n * Q * F + rows[:, None] * F + cols[None, :]
    q = tl.load(q_ptr + at, inside, 0.0).to(tl.float32)
    w = tl.load(w_ptr + n % H * F + cols, in_cols, 0.0)
    d_q = tl.zeros([ROWS, COLS], tl.float32)
    d_w = tl.zeros([COLS], tl.float32)
    k_ptr += n * K * F
    d_k_ptr += n * K * F
    d_scores_ptr += local * keys * step + index
    # Two at a time, so that the second one's numbers are loaded with the first's.
    for key in range(tl.min(low, 0) // 2 * 2, tl.max(high, 0), 2):
        after = tl.minimum(key + 1, K - 1)  # where there is none the score's gradient is zero
        k, next_k = tl.load(k_ptr + key * F + cols, in_cols, 0.0), tl.load(k_ptr + after * F + cols, in_cols, 0.0)
        d_score = tl.load(d_scores_ptr + key * step)
        next_d_score = tl.load(d_scores_ptr + (key + 1) * step)
        d_q, d_k, d_w = _add_key(q, k, d_score, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_ptr + key * F + cols, d_k * w, in_cols, sem="relaxed")
        d_q, d_k, d_w = _add_key(q, next_k, next_d_score, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_ptr + after * F + cols, d_k * w, in_cols, sem="relaxed")
    tl.store(d_q_ptr + at, (d_q * w[None, :]).to(d_q_ptr.dtype.element_ty), inside)
    tl.atomic_add(d_w_ptr + n % H * F + cols, d_w, in_cols, sem="relaxed")


@triton.jit
def _add_key(q, k, d_score, d_q, d_w, HARDWARE: tl.constexpr):
    """Return the gradients of queries and of w with one key's share, and the key's own, before their factor w.

    Seven instructions for each pair and feature, the tanh among them, which alone takes as long as eight others.
    """
    gates = tanh(q + k.to(tl.float32)[None, :], HARDWARE)
    share = d_score[:, None] * gates
    slope = tl.fma(-share, gates, tl.broadcast_to(d_score[:, None], gates.shape))  # d_score · (1 − tanh²)
    return d_q + slope, tl.sum(slope, 0), d_w + tl.sum(share, 0)


MIX_SHAPE = {"ROWS": 32, "COLS": 64, "num_warps": 4, "num_stages": 3}


def additive_attention(
    f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
) -> Tensor:
    """Return `softmax(w · tanh(f_q + f_k)) v` with one tanh for each pair and feature; Θ(Q + K) memory.

    To that come the scores of some queries, a few million numbers however long the inputs are. Features and values are
    (B, H, length, width), w is (H, F). A query that sees no key gets zeros. `hardware` takes the GPU's approximate
    tanh. Autocast's type is used where that is on; sums are in float32.
    """
    return _AdditiveAttention.apply(f_q, f_k, w, v, mask, dropout, hardware)  # pyright: ignore[reportReturnType]


class _AdditiveAttention(torch.autograd.Function):
    """Saves its inputs, the output and one number for each query; weights and tanh are computed anew."""

    @staticmethod
    def forward(
        ctx: Any, f_q: Tensor, f_k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: float, hardware: bool
    ) -> Tensor:
        B, H, Q, E = *f_q.shape[:3], v.shape[3]
        dtype = compute_dtype(f_q)
        ctx.dtypes = tuple(x.dtype for x in (f_q, f_k, w, v))
        q, k, values = (x.to(dtype).reshape(B * H, *x.shape[2:]).contiguous() for x in (f_q, f_k, v))
        w = w.to(torch.float32).contiguous()
        ctx.mask, ctx.dropout, ctx.hardware = mask, dropout_args(dropout, v.device), hardware
        out, log_sum = _attend(q, k, w, values, mask, ctx.dropout, hardware)
        ctx.save_for_backward(q, k, w, values, out, log_sum)
        return out.view(B, H, Q, E)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        q, _, w, _, out, _ = ctx.saved_tensors
        d_out = d_out.to(q.dtype).reshape(out.shape).contiguous()
        d_q, d_k, d_w, d_v = gradients(ctx.saved_tensors, d_out, ctx.mask, ctx.dropout, ctx.hardware)
        lead = (-1, len(w))
        shaped = (d_q.unflatten(0, lead), d_k.unflatten(0, lead), d_w, d_v.unflatten(0, lead))
        return *(grad.to(dtype) for grad, dtype in zip(shaped, ctx.dtypes, strict=True)), None, None, None


def _attend(
    q: Tensor, k: Tensor, w: Tensor, v: Tensor, mask: Mask, dropout: DropoutArgs, hardware: bool
) -> tuple[Tensor, Tensor]:
    """Return what queries (N, Q, F) get from keys (N, K, F), and the logarithm of their softmax's denominator."""
    (N, Q, _), (K, E) = q.shape, v.shape[1:]
    out = torch.empty(N, Q, E, dtype=v.dtype, device=v.device)
    log_sum = torch.empty(N, Q, dtype=torch.float32, device=v.device)
    args, features = mask_args(mask, q.device), by_feature(q, k, w)
    for n, chunk in chunks(N, Q, K):
        scores = score(features, n, chunk, K, args, hardware)
        _mix_kernel[triton.cdiv(chunk.size, MIX_SHAPE["ROWS"]), n](
            *(scores, v, out, log_sum, args, dropout, chunk, PairArgs(len(w), Q, K, *scores.shape[1:]), E),
            BLOCK_E=block_size(E),
            PRECISION=dot_precision(q.dtype),
            **MIX_SHAPE,
        )
    return out, log_sum


@triton.jit
def _mix_kernel(
    scores_ptr, v_ptr, out_ptr, log_sum_ptr, mask, dropout, chunk, pairs, E,
    BLOCK_E: tl.constexpr, PRECISION: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    H, Q, K, keys, step = pairs
    local, n, index, rows, low, high = chunk_rows(chunk, mask, H, K, 1, ROWS)
    end = chunk.start + chunk.size
    wide = tl.arange(0, BLOCK_E)
    scores_ptr += local * keys * step
    v_ptr += n * K * E
    highest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, BLOCK_E], tl.float32)
    for first in range(tl.min(low, 0) // COLS * COLS, tl.max(high, 0), COLS):
        cols = first + tl.arange(0, COLS)
        scores = tl.load(scores_ptr + cols[None, :] * step + index[:, None])
        allowed = allowed_pairs(
            rows[:, None], cols[None, :], low[:, None], high[:, None], n // H, n % H, end, K, mask
        )  # fmt: skip
        scores = tl.where(allowed, scores, -1e30)
        higher = tl.maximum(highest, tl.max(scores, 1))
        p = tl.where(allowed, tl.exp(scores - higher[:, None]), 0.0)
        rescale = tl.exp(highest - higher)
        total = total * rescale + tl.sum(p, 1)
        if dropout.seed_ptr is not None:
            kept = dropout_mask(dropout, n, rows[:, None] * K + cols[None, :])
            p = tl.where(kept, p / (1 - dropout.rate), 0.0)
        ptr = v_ptr + cols.to(tl.int64)[:, None] * E + wide[None, :]
        v = tl.load(ptr, (cols < K)[:, None] & (wide < E)[None, :], 0.0)
        mixed = mixed * rescale[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        highest = higher
    empty = total == 0.0
    total = tl.where(empty, 1.0, total)
    # +∞ for a query that sees no key, so that all its weights are zeros in the backward pass.
    tl.store(log_sum_ptr + n * Q + rows, tl.where(empty, float("inf"), highest + tl.log(total)), rows < end)
    ptr = out_ptr + n * Q * E + rows.to(tl.int64)[:, None] * E + wide[None, :]
    out = (mixed / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(ptr, out, (rows < end)[:, None] & (wide < E)[None, :])
