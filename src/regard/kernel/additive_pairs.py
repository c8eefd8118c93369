"""The scores of additive attention, `w · tanh(q + k)`, for some queries and all keys at a time.

This is where the time goes: the GPU's tanh is slower than all else by a factor of eight. So the kernel does nothing but
scores. It has no product inside, whose order of numbers the tile would have to take, and a thread's four queries come
by one load.
"""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernel.sight import interval
from regard.kernel.tanh import tanh

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
