"""Its scores and gradients.

This is where the time goes: the GPU's tanh is slower than all else by a factor of eight. So the kernel does nothing but
scores. It has no product inside, whose order of numbers the tile would have to take, and a thread's four queries come
by one load.

The scores are made once more for theirs; the features' need another tanh for each pair. A thread of that kernel owns a
feature: it goes through pairs with nothing to be added across threads, and hands each key's sum over its queries to
memory by an atomic addition.
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import cut, delta, interval, kept, sight, tanh
from regard.mask import Mask

# Pairs whose scores are in memory at a time; but so many queries at least, to keep a GPU busy.
PAIRS, BUSY = 2**22, 2048
# Features whose loads are in flight together, and tokens that go together: both are filled up to multiples.
AT_ONCE, TOGETHER = 8, 128
SIDE = 64  # of the square tiles that are turned
SHAPE = {"KEYS": 16, "QUERIES": 128, "num_warps": 4, "num_stages": 1}
Here = tuple[int, int, int]  # the first head of those in memory, their first query, and the number of their queries


def by_feature(q: Tensor, k: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gives queries (N, F, Q), keys (N, F, K) and w (H, F) in float32, filled up: features weigh nothing there."""
    return _turned(q), _turned(k), torch.nn.functional.pad(w, (0, -w.shape[1] % AT_ONCE))


def _turned(x: Tensor) -> Tensor:
    N, T, F = x.shape
    size = (N, F + -F % AT_ONCE, T + -T % TOGETHER)
    turned = torch.empty(size, dtype=torch.float32, device=x.device)
    _turn[triton.cdiv(size[2], SIDE), triton.cdiv(size[1], SIDE), N](x, turned, T, F, *size[1:], SIDE=SIDE, num_warps=4)
    return turned


def chunks(N: int, Q: int, K: int) -> Iterator[tuple[int, Here]]:
    """Goes through heads and their queries, as many at a time as there is room for: how many heads, and where."""
    n_rows = min(Q, max(BUSY, PAIRS // max(1, K) // TOGETHER * TOGETHER))
    n_heads = max(1, PAIRS // max(1, n_rows * K))
    for first in range(0, N, n_heads):
        for start in range(0, Q, n_rows):
            yield min(n_heads, N - first), (first, start, min(n_rows, Q - start))


def score(
    features: tuple[Tensor, Tensor, Tensor], n: int, here: Here, K: int, rules: tuple[Any, Any], hardware: bool
) -> Tensor:
    """Gives scores (n, K, q) in float32, key by key; what fills up has any, and so have tiles that nobody may see."""
    f_q, f_k, w = features
    H, F = w.shape
    size = (n, f_k.shape[2], here[2] + -here[2] % TOGETHER)
    scores = torch.empty(size, dtype=torch.float32, device=w.device)
    lengths, flags = rules[0][:4], {name: on for name, on in rules[1].items() if name != "CUT"}
    _score[triton.cdiv(size[2], SHAPE["QUERIES"]), triton.cdiv(K, SHAPE["KEYS"]), n](
        *(f_q, f_k, w, scores, *lengths, *rules[0][-2:], *here, H, K, F, f_q.shape[2], *size[1:]),
        **flags,
        HARDWARE=hardware,
        AT_ONCE=AT_ONCE,
        **SHAPE,
    )
    return scores


@triton.jit
def _turn(x_at, turned_at, T, F, features, tokens, SIDE: tl.constexpr):
    n = tl.program_id(2).to(tl.int64)
    rows, cols = tl.program_id(0) * SIDE + tl.arange(0, SIDE), tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = (rows < T)[:, None] & (cols < F)[None, :]
    x = tl.load(x_at + n * T * F + rows[:, None] * F + cols[None, :], inside, 0.0)
    place = turned_at + n * features * tokens + cols[None, :] * tokens + rows[:, None]
    tl.store(place, x.to(tl.float32), (cols < features)[None, :])


@triton.jit
def _score(
    q_at, k_at, w_at, scores_at, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
    n_first, start, size, H, K, F, q_step, k_step, step,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    HARDWARE: tl.constexpr, AT_ONCE: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(2).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    cols = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    low, high = interval(
        start + places, n // H, start + size, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window,
        PADDED, ENDED, CAUSAL, WINDOWED,
    )  # fmt: skip
    if (tl.max(high, 0) > tl.min(cols, 0)) & (tl.min(low, 0) <= tl.max(cols, 0)):
        q_at += n * F * q_step + start
        k_at += n * F * k_step
        w_at += n % H * F
        scores = tl.zeros([KEYS, QUERIES], tl.float32)
        for first in range(0, F, AT_ONCE):
            for i in tl.static_range(AT_ONCE):
                q = tl.load(q_at + (first + i) * q_step + places)
                k = tl.load(k_at + (first + i) * k_step + cols)
                scores += tl.load(w_at + first + i) * tanh(k[:, None] + q[None, :], HARDWARE)
        tl.store(scores_at + own * k_step * step + cols[:, None] * step + places[None, :], scores)


WEIGH = {"KEYS": 16, "QUERIES": 128, "num_warps": 4, "num_stages": 1}
# A thread has one feature of each query in its registers, and so many sums; programs are no wider than features are.
SPREAD = {"ROWS": 16, "COLS": 256, "num_stages": 1}


def gradients(
    saved: tuple[Tensor, ...], d_out: Tensor, mask: Mask, seed: Tensor | None, dropout: float, hardware: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gives the gradients of queries (N, Q, F), keys (N, K, F), w (H, F) and values (N, K, E).

    All but the queries' come in float32, as they are added up.
    """
    q, k, w, v, out, log_sum = saved
    (N, Q, _), K, H = q.shape, k.shape[1], len(w)
    deltas = delta(out[:, None], d_out[:, None])
    d_q = torch.empty_like(q)
    d_k, d_w, d_v = (torch.zeros(x.shape, dtype=torch.float32, device=q.device) for x in (k, w, v))
    features = by_feature(q, k, w)
    rules = sight(mask, q.device)
    for n, here in chunks(N, Q, K):
        first, start, size = here
        heads = slice(first, first + n)
        ahead = d_out[heads, start : start + size]
        d_scores = score(features, n, here, K, rules, hardware)
        p = torch.bmm(v[heads], ahead.transpose(1, 2))  # the weights' gradients (n, K, q), whose place they take
        weigh(d_scores, p, (log_sum, deltas), here, H, rules, seed, dropout)
        d_v[heads] += _product(p, ahead)
        spread((q, k, w), d_scores, (d_q, d_k, d_w), here, rules, hardware)
    return d_q, d_k, d_w, d_v


def weigh(
    scores: Tensor, d_p: Tensor, rows: tuple[Tensor, Tensor], here: Here, H: int, rules: tuple[Any, Any],
    seed: Tensor | None, dropout: float,
) -> None:  # fmt: skip
    """Turns scores (n, K, q) into their gradients, zeros where they fill up, and the weights' gradients into weights.

    Those come dropped out.
    """
    (n, K, _), (keys, step) = d_p.shape, scores.shape[1:]
    _weigh[triton.cdiv(step, WEIGH["QUERIES"]), triton.cdiv(keys, WEIGH["KEYS"]), n](
        *(scores, d_p, *rows, seed, *rules[0], *here, H, rows[0].shape[1], K, keys, step, dropout),
        **rules[1],
        DROPS=dropout > 0.0,
        **WEIGH,
    )


def spread(
    given: tuple[Tensor, ...], d_scores: Tensor, sums: tuple[Tensor, ...], here: Here, rules: tuple[Any, Any],
    hardware: bool,
) -> None:  # fmt: skip
    """Writes these rows' gradients of queries, and adds to those of keys and of w."""
    (n, keys, step), (_, Q, F), (K, H) = d_scores.shape, given[0].shape, (given[1].shape[1], len(given[2]))
    lengths, flags = rules[0][:4], {name: on for name, on in rules[1].items() if name != "CUT"}
    shape = SPREAD | {"COLS": min(SPREAD["COLS"], max(64, triton.next_power_of_2(F)))}
    _spread[triton.cdiv(here[2], shape["ROWS"]), triton.cdiv(F, shape["COLS"]), n](
        *(*given, d_scores, *sums, *lengths, *rules[0][-2:], *here, keys, step, H, Q, K, F),
        **flags,
        WHOLE=F % shape["COLS"] == 0,
        HARDWARE=hardware,
        num_warps=shape["COLS"] // 32,
        **shape,
    )


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b, out_dtype=torch.float32) if a.is_cuda and a.dtype.itemsize == 2 else torch.bmm(a, b)


@triton.jit
def _weigh(
    scores_at, d_p_at, log_sum_at, delta_at, seed_at,
    lengths_at, lengths_b, lengths_q, ends_at, allowed_at, allowed_b, allowed_h, allowed_q, allowed_k, offset, window,
    n_first, start, size, H, Q, K, keys, step, dropout,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, CUT: tl.constexpr,
    DROPS: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(2).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    rows, end = start + places, start + size
    cols = tl.program_id(1) * KEYS + tl.arange(0, KEYS)
    low, high = interval(
        rows, n // H, end, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    allowed = (cols[:, None] >= low[None, :]) & (cols[:, None] < high[None, :])
    if CUT:
        allowed &= cut(
            rows[None, :], cols[:, None], n // H, n % H, end, K,
            allowed_at, allowed_b, allowed_h, allowed_q, allowed_k,
        )  # fmt: skip
    log_sum = tl.load(log_sum_at + n * Q + rows, rows < end, float("inf"))
    delta = tl.load(delta_at + n * Q + rows, rows < end, 0.0)
    scores_at += own * keys * step + cols[:, None] * step + places[None, :]
    scores = tl.where(allowed, tl.load(scores_at), -1e30)
    p = tl.exp(scores - log_sum[None, :])
    d_p_at += own * K * size + cols[:, None] * size + places[None, :]
    inside = (cols < K)[:, None] & (places < size)[None, :]
    d_p = tl.load(d_p_at, inside, 0.0).to(tl.float32)
    stayed = p
    if DROPS:
        stay = kept(seed_at, n, rows[None, :] * K + cols[:, None], dropout)
        d_p = tl.where(stay, d_p / (1 - dropout), 0.0)
        stayed = tl.where(stay, p / (1 - dropout), 0.0)
    tl.store(scores_at, p * (d_p - delta[None, :]))
    tl.store(d_p_at, stayed.to(d_p_at.dtype.element_ty), inside)


@triton.jit(do_not_specialize=["F"])  # a feature a thread, not several: what F divides by must not be known
def _spread(
    q_at, k_at, w_at, d_scores_at, d_q_at, d_k_at, d_w_at,
    lengths_at, lengths_b, lengths_q, ends_at, offset, window, n_first, start, size, keys, step, H, Q, K, F,
    PADDED: tl.constexpr, ENDED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, HARDWARE: tl.constexpr,
    WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(2).to(tl.int64)
    n = own + n_first
    places = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    rows, end = start + places, start + size
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    low, high = interval(
        rows, n // H, end, K, lengths_at, lengths_b, lengths_q, ends_at, offset, window, PADDED, ENDED, CAUSAL, WINDOWED
    )  # fmt: skip
    own_cols = (cols < F) | WHOLE
    inside = (rows < end)[:, None] & own_cols[None, :]
    place = n * Q * F + rows[:, None] * F + cols[None, :]
    q = tl.load(q_at + place, inside, 0.0).to(tl.float32)
    w = tl.load(w_at + n % H * F + cols, own_cols, 0.0)
    d_q = tl.zeros([ROWS, COLS], tl.float32)
    d_w = tl.zeros([COLS], tl.float32)
    k_at += n * K * F
    d_k_at += n * K * F
    d_scores_at += own * keys * step + places
    # Two at a time, so that the second one's numbers are on their way with the first's.
    for key in range(tl.min(low, 0) // 2 * 2, tl.max(high, 0), 2):
        after = tl.minimum(key + 1, K - 1)  # where there is none the score's gradient is zero
        k, other_k = tl.load(k_at + key * F + cols, own_cols, 0.0), tl.load(k_at + after * F + cols, own_cols, 0.0)
        d_score = tl.load(d_scores_at + key * step)
        other = tl.load(d_scores_at + (key + 1) * step)
        d_q, d_k, d_w = pass_back(q, k, d_score, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_at + key * F + cols, d_k * w, own_cols, sem="relaxed")
        d_q, d_k, d_w = pass_back(q, other_k, other, d_q, d_w, HARDWARE)
        tl.atomic_add(d_k_at + after * F + cols, d_k * w, own_cols, sem="relaxed")
    tl.store(d_q_at + place, (d_q * w[None, :]).to(d_q_at.dtype.element_ty), inside)
    tl.atomic_add(d_w_at + n % H * F + cols, d_w, own_cols, sem="relaxed")


@triton.jit
def pass_back(q, k, d_score, d_q, d_w, HARDWARE: tl.constexpr):
    """Adds what one key contributes to the gradients of queries and of w, and gives its own, before their factor w.

    Seven instructions for each pair and feature, the tanh among them, which alone takes as long as eight others.
    """
    gates = tanh(q + k.to(tl.float32)[None, :], HARDWARE)
    share = d_score[:, None] * gates
    slope = tl.fma(-share, gates, tl.broadcast_to(d_score[:, None], gates.shape))  # d_score · (1 − tanh²)
    return d_q + slope, tl.sum(slope, 0), d_w + tl.sum(share, 0)
