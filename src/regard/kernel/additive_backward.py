"""The gradients of additive attention: the scores' first, some rows at a time, then those of all that makes them.

The scores' gradients need one tanh for each pair and feature, for the scores themselves; the features' need another. A
thread of the second kernel owns a feature: it goes through pairs with nothing to be added across threads, and hands
each key's sum over its queries to memory by an atomic addition.
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.additive_pairs import AT_ONCE, by_feature, pair_scores
from regard.kernel.keep import kept
from regard.kernel.sight import cut, interval, sight
from regard.kernel.tanh import tanh
from regard.kernel.tune import about, tuned
from regard.mask import Mask

# Pairs whose weights and gradients are in memory at a time; but so many queries at least, to keep a GPU busy.
PAIRS, BUSY = 2**22, 2048
# Queries of a program that spreads gradients, at most: rows of scores' gradients are filled up with zeros for it.
MOST = 32


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, mask: Mask, seed: Tensor | None, dropout: float, hardware: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gives the gradients of queries (N, Q, F), keys (N, K, F), w (H, F) and values (N, K, E), in float32."""
    q, k, w, v, out, log_sum = saved
    (N, Q, _), K = q.shape, k.shape[1]
    delta = torch.linalg.vecdot(d_out.float(), out.float())
    d_q, d_k, d_w, d_v = (torch.zeros(x.shape, dtype=torch.float32, device=q.device) for x in (q, k, w, v))
    features = by_feature(q, k, w)
    rules = sight(mask, q.device)
    for first, n, start, size in chunks(N, Q, K):
        p = torch.empty(n, size, K, dtype=q.dtype, device=q.device)
        d_scores = torch.empty(n, K + K % 2, triton.cdiv(size, MOST) * MOST, dtype=torch.float32, device=q.device)
        here = (first, start, size)
        weigh((*features, v, d_out, log_sum, delta), p, d_scores, here, rules, seed, dropout, hardware)
        d_v[first : first + n] += _product(p.transpose(1, 2), d_out[first : first + n, start : start + size])
        spread((q, k, w), d_scores, (d_q, d_k, d_w), here, rules, hardware)
    return d_q, d_k, d_w, d_v


def chunks(N: int, Q: int, K: int) -> Iterator[tuple[int, int, int, int]]:
    """Goes through heads and their queries, as many at a time as there is room for: first and number of each."""
    n_rows = min(Q, max(BUSY, PAIRS // max(1, K) // 64 * 64))
    n_heads = max(1, PAIRS // max(1, n_rows * K))
    for first in range(0, N, n_heads):
        for start in range(0, Q, n_rows):
            yield first, min(n_heads, N - first), start, min(n_rows, Q - start)


def weigh(
    given: tuple[Tensor, ...], p: Tensor, d_scores: Tensor, here: tuple[int, int, int], rules: tuple[Any, Any],
    seed: Tensor | None, dropout: float, hardware: bool,
) -> None:  # fmt: skip
    """Writes weights (n, q, K), dropped out, and the gradients of scores, key by key, with zeros to fill up."""
    (n, size, K), (H, F), (Q, E) = p.shape, given[2].shape, given[4].shape[1:]
    _weigh[lambda chosen: (triton.cdiv(size, chosen["ROWS"]), triton.cdiv(K, chosen["COLS"]), n)](
        *(*given, p, d_scores, seed, *rules[0], *here, d_scores.shape[2], H, Q, K, F, E, dropout, about(size, K)),
        **rules[1],
        DROPS=dropout > 0.0,
        HARDWARE=hardware,
        AT_ONCE=AT_ONCE,
        EXACT="ieee" if p.dtype == torch.float32 else "tf32",
    )


def spread(
    given: tuple[Tensor, ...], d_scores: Tensor, sums: tuple[Tensor, ...], here: tuple[int, int, int],
    rules: tuple[Any, Any], hardware: bool,
) -> None:  # fmt: skip
    """Adds what these rows' scores contribute to the gradients of queries, keys and w."""
    n, (_, Q, F), (K, H), size = len(d_scores), given[0].shape, (given[1].shape[1], len(given[2])), here[2]
    lengths, flags = rules[0][:4], {name: on for name, on in rules[1].items() if name != "CUT"}
    _spread[lambda chosen: (triton.cdiv(size, chosen["ROWS"]), triton.cdiv(F, chosen["COLS"]) * chosen["SPLITS"], n)](
        *(*given, d_scores, *sums, *lengths, *rules[0][-2:], *here, d_scores.shape[2], H, Q, K, F, about(size, K)),
        **flags,
        WHOLE=F % 128 == 0,
        HARDWARE=hardware,
    )


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda and a.dtype.itemsize == 2 else torch.bmm(a, b)


@tuned(
    ("ROWS", "COLS"),
    [(32, 64, 4, 2, None), (64, 64, 8, 2, None)],
    key=("about", "F", "E"),
)
@triton.jit
def _weigh(
    q_at, k_at, w_at, v_at, d_out_at, log_sum_at, delta_at, p_at, d_scores_at, seed_at,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    n_first, start, size, stride, H, Q, K, F, E, dropout, about,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    DROPS: tl.constexpr, HARDWARE: tl.constexpr, AT_ONCE: tl.constexpr, EXACT: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(2).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, end = start + places, start + size
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    low, high = interval(
        rows, n // H, end, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    p = tl.zeros([ROWS, COLS], tl.float32)
    d_scores = tl.zeros([ROWS, COLS], tl.float32)
    if (tl.max(high, 0) > tl.min(cols, 0)) & (tl.min(low, 0) <= tl.max(cols, 0)):
        scores = pair_scores(
            q_at + n * F * Q + start, k_at + n * F * K, w_at + n % H * F,
            places, cols, size, K, Q, K, F, HARDWARE, AT_ONCE,
        )  # fmt: skip
        allowed = (cols[None, :] >= low[:, None]) & (cols[None, :] < high[:, None])
        if CUT:
            allowed &= cut(
                rows[:, None], cols[None, :], n // H, n % H, end, K,
                allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
            )  # fmt: skip
        log_sum = tl.load(log_sum_at + n * Q + rows, rows < end, float("inf"))
        delta = tl.load(delta_at + n * Q + rows, rows < end, 0.0)
        p = tl.where(allowed, tl.exp(scores - log_sum[:, None]), 0.0)
        d_p = against_values(d_out_at + n * Q * E, v_at + n * K * E, rows, cols, end, K, E, EXACT)
        if DROPS:
            stay = kept(seed_at, n, rows[:, None] * K + cols[None, :], dropout)
            d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
            d_scores = p * (d_p - delta[:, None])
            p = tl.where(stay, p / (1 - dropout), 0.0)
        else:
            d_scores = p * (d_p - delta[:, None])
    inside = (places < size)[:, None] & (cols < K)[None, :]
    tl.store(p_at + own * size * K + places[:, None] * K + cols[None, :], p.to(p_at.dtype.element_ty), inside)
    filled = (places < stride)[:, None] & (cols < K + K % 2)[None, :]
    tl.store(d_scores_at + own * stride * (K + K % 2) + cols[None, :] * stride + places[:, None], d_scores, filled)


@triton.jit
def against_values(d_out_at, v_at, rows, cols, end, K, E, EXACT: tl.constexpr):
    """Gives `d_out vᵀ`, 64 features at a time."""
    d_p = tl.zeros([rows.shape[0], cols.shape[0]], tl.float32)
    for first in range(0, E, 64):
        wide = first + tl.arange(0, 64)
        inside = (rows < end)[:, None] & (wide < E)[None, :]
        d_out = tl.load(d_out_at + rows[:, None] * E + wide[None, :], inside, 0.0)
        v = tl.load(v_at + cols[None, :] * E + wide[:, None], (cols < K)[None, :] & (wide < E)[:, None], 0.0)
        d_p += tl.dot(d_out, v, input_precision=EXACT)
    return d_p


# A thread has one feature of each query in its registers, and so many sums.
@tuned(
    ("ROWS", "COLS", "SPLITS"),
    [(16, 128, 1, 4, 1, None), (32, 128, 1, 4, 1, None), (32, 128, 2, 4, 1, None)],
    key=("about", "F"),
    sums=("d_q_at", "d_k_at", "d_w_at"),
)
@triton.jit(do_not_specialize=["F"])  # a feature a thread, not several: what F divides by must not be known
def _spread(
    q_at, k_at, w_at, d_scores_at, d_q_at, d_k_at, d_w_at,
    lengths_at, lengths_b, lengths_q, ends_at, offset, window, n_first, start, size, stride, H, Q, K, F, about,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, HARDWARE: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(2).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, end = start + places, start + size
    part = tl.program_id(1) % SPLITS
    cols = tl.program_id(1) // SPLITS * COLS + tl.arange(0, COLS)
    low, high = interval(
        rows, n // H, end, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    near, far = tl.min(low, 0) // 2 * 2, tl.max(high, 0)
    share = tl.cdiv(tl.maximum(far - near, 0), 2 * SPLITS) * 2
    near, far = near + part * share, tl.minimum(near + (part + 1) * share, far)
    own_cols = (cols < F) | WHOLE
    inside = (rows < end)[:, None] & own_cols[None, :]
    place = n * Q * F + rows[:, None] * F + cols[None, :]
    q = tl.load(q_at + place, inside, 0.0).to(tl.float32)
    w = tl.load(w_at + n % H * F + cols, own_cols, 0.0)
    d_q = tl.zeros([ROWS, COLS], tl.float32)
    d_w = tl.zeros([COLS], tl.float32)
    k_at += n * K * F
    d_k_at += n * K * F
    d_scores_at += own * stride * (K + K % 2)
    for key in range(near, far, 2):  # two at a time, so that the second one's numbers are on their way with the first's
        after = tl.minimum(key + 1, K - 1)  # where there is none the score's gradient is zero
        k, other_k = tl.load(k_at + key * F + cols, own_cols, 0.0), tl.load(k_at + after * F + cols, own_cols, 0.0)
        d_score = tl.load(d_scores_at + key * stride + places)
        other = tl.load(d_scores_at + (key + 1) * stride + places)
        d_q, d_k, d_w = pass_back(q, k, d_score, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_at + key * F + cols, d_k * w, own_cols, sem="relaxed")
        d_q, d_k, d_w = pass_back(q, other_k, other, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_at + after * F + cols, d_k * w, own_cols, sem="relaxed")
    tl.atomic_add(d_q_at + place, d_q * w[None, :], inside, sem="relaxed")
    tl.atomic_add(d_w_at + n % H * F + cols, d_w, own_cols, sem="relaxed")


@triton.jit
def pass_back(q, k, d_score, d_q, d_w, HARDWARE: tl.constexpr):
    """Adds what one key contributes to the gradients of queries and of w, and gives its own, before their factor w."""
    gates = tanh(q + k.to(tl.float32)[None, :], HARDWARE)
    d_score = tl.broadcast_to(d_score[:, None], gates.shape)
    slope = 1.0 - gates * gates
    # By an fma of its own: a product that both sums shared would cost an instruction more.
    return tl.fma(d_score, slope, d_q), tl.sum(d_score * slope, 0), d_w + tl.sum(d_score * gates, 0)
