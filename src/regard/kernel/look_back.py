"""Attention of hypotheses to what they wrote: a token is looked up where it was first written, and never moved."""

import triton
import triton.language as tl
from torch import Tensor

TOKENS = 16  # looked at at once


def look_back(qkv: Tensor, memory: Tensor, ancestors: Tensor, ages: Tensor, n_heads: int, out: Tensor) -> Tensor:
    """Writes each hypothesis's new key and value into the memory, and lets its query look at them and all before.

    `qkv` is (R, 3 D), `memory` (2, B, T, N, D) with keys first, `ancestors` (B, N, T), `ages` (B), `out` (R, D). A
    program is one warp with few numbers, so that many are at work at a time, and asks for all it needs before it waits
    for any.
    """
    _, B, T, N, D = memory.shape
    E = D // n_heads
    _look_back[(B * N, n_heads)](
        *(qkv, memory[0], memory[1], ancestors, ages, out, N, T, D, E, E**-0.5),
        BLOCK_E=triton.next_power_of_2(E),
        BLOCK_T=TOKENS,
        num_warps=1,
    )
    return out


@triton.jit
def _look_back(
    qkv_at, keys_at, values_at, ancestors_at, ages_at, out_at, N, T, D, E, scale,
    BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, hypothesis = row // N, row % N
    features, places = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_T)
    inside = features < E
    column = head * E + features
    age = tl.load(ages_at + slot).to(tl.int32)
    ancestor = tl.load(ancestors_at + row * T + places, places < T, 0)
    q = tl.load(qkv_at + row * 3 * D + column, inside, 0.0).to(tl.float32) * scale
    k = tl.load(qkv_at + row * 3 * D + D + column, inside, 0.0)
    v = tl.load(qkv_at + row * 3 * D + 2 * D + column, inside, 0.0)
    # The new token is always seen, so that the softmax begins with it.
    largest = tl.sum(q * k.to(tl.float32), 0)
    total = tl.full([], 1.0, tl.float32)
    mixed = v.to(tl.float32)
    for first in range(0, age, BLOCK_T):
        written = first + places < age
        if first > 0:
            ancestor = tl.load(ancestors_at + row * T + first + places, written, 0)
        at = ((slot * T + first + places) * N + ancestor)[:, None] * D + column[None, :]
        seen = written[:, None] & inside[None, :]
        keys = tl.load(keys_at + at, seen, 0.0)
        values = tl.load(values_at + at, seen, 0.0)
        scores = tl.where(written, tl.sum(keys.to(tl.float32) * q[None, :], 1), float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 0))
        shrunk = tl.exp(largest - now)
        weights = tl.exp(scores - now)
        mixed = mixed * shrunk + tl.sum(values.to(tl.float32) * weights[:, None], 0)
        total = total * shrunk + tl.sum(weights, 0)
        largest = now
    tl.store(out_at + row * D + column, (mixed / total).to(out_at.dtype.element_ty), inside)
    here = ((slot * T + age) * N + hypothesis) * D + column
    tl.store(keys_at + here, k, inside)
    tl.store(values_at + here, v, inside)
