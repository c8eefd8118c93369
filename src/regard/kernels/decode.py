"""Decode-step attention and top-k."""

import torch
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


BLOCK, GROUP = 1024, 64  # logits that one program reads, and those of which it keeps the largest alone


def likeliest_tokens(logits: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
    """Gives the k largest log-probabilities of each row, largest first, and their tokens; none is below `first`.

    The first kernel finds what each block adds to the sum of all, and the largest logit of each group. The k likeliest
    tokens stand in the k groups with the largest; only these are looked through by the second.
    """
    R, V = logits.shape
    n_blocks, n_groups = triton.cdiv(V, BLOCK), triton.cdiv(V, GROUP)
    sums = torch.empty(R, n_blocks, 2, dtype=torch.float32, device=logits.device)
    peaks = torch.empty(R, n_groups, dtype=torch.float32, device=logits.device)
    _in_blocks[(R, n_blocks)](
        *(logits, sums, peaks, V, first, n_blocks, n_groups), BLOCK=BLOCK, GROUP=GROUP, num_warps=1
    )
    gains = torch.empty(R, k, dtype=torch.float32, device=logits.device)
    said = torch.empty(R, k, dtype=torch.int64, device=logits.device)
    _in_groups[(R,)](
        *(logits, sums, peaks, gains, said, V, first, n_blocks, n_groups),
        K=k,
        BLOCKS=triton.next_power_of_2(n_blocks),
        GROUPS=triton.next_power_of_2(n_groups),
        ROWS=triton.next_power_of_2(k),
        GROUP=GROUP,
        num_warps=1,
    )
    return gains, said


@triton.jit
def _in_blocks(
    logits_at, sums_at, peaks_at, V, first, n_blocks, n_groups, BLOCK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    groups = block * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
    ids = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(logits_at + row * V + ids, ids < V, float("-inf")).to(tl.float32)
    largest = tl.max(tl.max(x, 1), 0)
    safe = tl.where(largest == float("-inf"), 0.0, largest)
    here = (row * n_blocks + block) * 2
    tl.store(sums_at + here, largest)
    tl.store(sums_at + here + 1, tl.sum(tl.sum(tl.exp(x - safe), 1), 0))
    peaks = tl.max(tl.where(ids < first, float("-inf"), x), 1)
    tl.store(peaks_at + row * n_groups + groups, peaks, groups < n_groups)


@triton.jit
def _in_groups(
    logits_at, sums_at, peaks_at, gains_at, said_at, V, first, n_blocks, n_groups,
    K: tl.constexpr, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    groups = tl.arange(0, GROUPS)
    peaks = tl.load(peaks_at + row * n_groups + groups, groups < n_groups, float("-inf"))
    log_sum = _log_sum(sums_at + row * n_blocks * 2, n_blocks, BLOCKS)
    ranks = _ranks(peaks, groups, groups < n_groups)
    rows, chosen = tl.arange(0, ROWS), tl.full([ROWS], 0, tl.int32)
    for i in tl.static_range(K):
        best = tl.max(ranks, 0)
        chosen = tl.where(rows == i, _place(best), chosen)
        ranks = tl.where(ranks == best, _nothing(), ranks)
    ids = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (rows < min(K, n_groups))[:, None] & (ids >= first) & (ids < V)
    ranks = _ranks(tl.load(logits_at + row * V + ids, there, 0.0).to(tl.float32), ids, there)
    for i in tl.static_range(K):
        best = tl.max(tl.max(ranks, 1), 0)
        tl.store(gains_at + row * K + i, tl.where(best == _nothing(), float("-inf"), _number(best) - log_sum))
        tl.store(said_at + row * K + i, tl.where(best == _nothing(), 0, _place(best)).to(tl.int64))
        ranks = tl.where(ranks == best, _nothing(), ranks)


@triton.jit
def _log_sum(sums_at, n_blocks, BLOCKS: tl.constexpr):
    blocks = tl.arange(0, BLOCKS)
    largest = tl.load(sums_at + blocks * 2, blocks < n_blocks, float("-inf"))
    sums = tl.load(sums_at + blocks * 2 + 1, blocks < n_blocks, 0.0)
    top = tl.max(largest, 0)
    return top + tl.log(tl.sum(sums * tl.exp(largest - top), 0))


@triton.jit
def _ranks(x, places, real):
    """Gives whole numbers in the order of x, the first of equals the largest: one maximum finds number and place."""
    bits = x.to(tl.int32, bitcast=True)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    return tl.where(real, (ordered << 32) | (0x7FFFFFFF - places), _nothing())


@triton.jit
def _nothing():
    """Gives what is below the rank of any number."""
    return tl.full([], -(2**63), tl.int64)


@triton.jit
def _number(rank):
    bits = (rank >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _place(rank):
    return 0x7FFFFFFF - (rank & 0x7FFFFFFF).to(tl.int32)
