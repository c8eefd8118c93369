"""Attention of all hypotheses of a sentence to its source, which is read once for all of them."""

import torch
import triton
import triton.language as tl
from torch import Tensor


def look_across(q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, n_heads: int, out: Tensor) -> Tensor:
    """Lets each row of q (B N, D) look at the first `lengths[b]` keys of its sentence, (B, S, D); zeros if none are."""
    B, S, D = keys.shape
    E = D // n_heads
    N = len(q) // B
    _look_across[(B, n_heads)](
        *(q, keys, values, lengths, out, N, D, E, E**-0.5, *keys.stride()[:2]),
        BLOCK_N=max(16, triton.next_power_of_2(N)),
        BLOCK_S=min(64, max(16, triton.next_power_of_2(S))),
        BLOCK_E=max(16, triton.next_power_of_2(E)),
        EXACT="ieee" if q.dtype == torch.float32 else "tf32",
        num_warps=2,
    )
    return out


@triton.jit
def _look_across(
    q_at, keys_at, values_at, lengths_at, out_at, N, D, E, scale, by_slot, by_place,
    BLOCK_N: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lengths_at + slot).to(tl.int32)
    rows, features = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_E)
    column = head * E + features
    inside = (rows < N)[:, None] & (features < E)[None, :]
    at = (slot * N + rows)[:, None] * D + column[None, :]
    q = tl.load(q_at + at, inside, 0.0)
    largest = tl.full([BLOCK_N], -1e30, tl.float32)
    total = tl.zeros([BLOCK_N], tl.float32)
    mixed = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    for first in range(0, length, BLOCK_S):
        places = first + tl.arange(0, BLOCK_S)
        real = places < length
        there = slot * by_slot + places[:, None] * by_place + column[None, :]
        seen = real[:, None] & (features < E)[None, :]
        keys = tl.load(keys_at + there, seen, 0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=EXACT) * scale
        scores = tl.where(real[None, :], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        shrunk = tl.exp(largest - now)
        weights = tl.exp(scores - now[:, None])
        values = tl.load(values_at + there, seen, 0.0)
        mixed = mixed * shrunk[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=EXACT)
        total = total * shrunk + tl.sum(weights, 1)
        largest = now
    mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out_at + at, mixed.to(out_at.dtype.element_ty), inside)
