"""One step of decoding: attention with a cache, attention to the source, and the most probable tokens."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.kernels.primitives import block_size, dot_precision

TOKENS = 16  # of the cache that a program loads at once


def self_attention_decode(
    qkv: Tensor, cache: Tensor, origins: Tensor, lengths: Tensor, n_heads: int, out: Tensor
) -> Tensor:
    """Write each hypothesis's new key and value into the cache, and return what its query gets from all so far.

    `qkv` is (R, 3 D), `cache` (2, B, T, N, D) with keys first, `origins` (B, N, T) says in which row a hypothesis's
    token stands at each position, `lengths` (B) counts tokens in the cache, `out` is (R, D). A program is one warp with
    few numbers, so that many run at a time, and it issues all its loads before it waits for any.
    """
    _, B, T, N, D = cache.shape
    E = D // n_heads
    _self_attention_kernel[(B * N, n_heads)](
        *(qkv, cache[0], cache[1], origins, lengths, out, N, T, D, E, E**-0.5),
        BLOCK_E=triton.next_power_of_2(E),
        BLOCK_T=TOKENS,
        num_warps=1,
    )
    return out


@triton.jit
def _self_attention_kernel(
    qkv_ptr, keys_ptr, values_ptr, origins_ptr, lengths_ptr, out_ptr, N, T, D, E, scale,
    BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, hypothesis = row // N, row % N
    features, positions = tl.arange(0, BLOCK_E), tl.arange(0, BLOCK_T)
    inside = features < E
    column = head * E + features
    length = tl.load(lengths_ptr + slot).to(tl.int32)
    origin = tl.load(origins_ptr + row * T + positions, positions < T, 0)
    q = tl.load(qkv_ptr + row * 3 * D + column, inside, 0.0).to(tl.float32) * scale
    k = tl.load(qkv_ptr + row * 3 * D + D + column, inside, 0.0)
    v = tl.load(qkv_ptr + row * 3 * D + 2 * D + column, inside, 0.0)
    # The new token is always visible, so the softmax begins with it.
    largest = tl.sum(q * k.to(tl.float32), 0)
    total = tl.full([], 1.0, tl.float32)
    mixed = v.to(tl.float32)
    for first in range(0, length, BLOCK_T):
        written = first + positions < length
        if first > 0:
            origin = tl.load(origins_ptr + row * T + first + positions, written, 0)
        at = ((slot * T + first + positions) * N + origin)[:, None] * D + column[None, :]
        seen = written[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + at, seen, 0.0)
        values = tl.load(values_ptr + at, seen, 0.0)
        scores = tl.where(written, tl.sum(keys.to(tl.float32) * q[None, :], 1), float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 0))
        rescale = tl.exp(largest - now)
        weights = tl.exp(scores - now)
        mixed = mixed * rescale + tl.sum(values.to(tl.float32) * weights[:, None], 0)
        total = total * rescale + tl.sum(weights, 0)
        largest = now
    tl.store(out_ptr + row * D + column, (mixed / total).to(out_ptr.dtype.element_ty), inside)
    here = ((slot * T + length) * N + hypothesis) * D + column
    tl.store(keys_ptr + here, k, inside)
    tl.store(values_ptr + here, v, inside)


def cross_attention_decode(
    q: Tensor, keys: Tensor, values: Tensor, lengths: Tensor, n_heads: int, out: Tensor
) -> Tensor:
    """Return what each row of q (B N, D) gets from the first `lengths[b]` keys of its sentence, (B, S, D).

    Rows of sentences without keys get zeros.
    """
    B, S, D = keys.shape
    E = D // n_heads
    N = len(q) // B
    _cross_attention_kernel[(B, n_heads)](
        *(q, keys, values, lengths, out, N, D, E, E**-0.5, *keys.stride()[:2]),
        BLOCK_N=block_size(N),
        BLOCK_S=min(64, block_size(S)),
        BLOCK_E=block_size(E),
        PRECISION=dot_precision(q.dtype),
        num_warps=2,
    )
    return out


@triton.jit
def _cross_attention_kernel(
    q_ptr, keys_ptr, values_ptr, lengths_ptr, out_ptr, N, D, E, scale, stride_b, stride_s,
    BLOCK_N: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_E: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    slot, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lengths_ptr + slot).to(tl.int32)
    rows, features = tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_E)
    column = head * E + features
    inside = (rows < N)[:, None] & (features < E)[None, :]
    at = (slot * N + rows)[:, None] * D + column[None, :]
    q = tl.load(q_ptr + at, inside, 0.0)
    largest = tl.full([BLOCK_N], -1e30, tl.float32)
    total = tl.zeros([BLOCK_N], tl.float32)
    mixed = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    for first in range(0, length, BLOCK_S):
        positions = first + tl.arange(0, BLOCK_S)
        real = positions < length
        there = slot * stride_b + positions[:, None] * stride_s + column[None, :]
        seen = real[:, None] & (features < E)[None, :]
        keys = tl.load(keys_ptr + there, seen, 0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where(real[None, :], scores, float("-inf"))
        now = tl.maximum(largest, tl.max(scores, 1))
        rescale = tl.exp(largest - now)
        weights = tl.exp(scores - now[:, None])
        values = tl.load(values_ptr + there, seen, 0.0)
        mixed = mixed * rescale[:, None] + tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        total = total * rescale + tl.sum(weights, 1)
        largest = now
    mixed = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    tl.store(out_ptr + at, mixed.to(out_ptr.dtype.element_ty), inside)


BLOCK, GROUP = 1024, 64  # logits that one program reads, and those of which it keeps only the largest


def topk(logits: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
    """Return the k largest log-probabilities of each row, largest first, and their tokens; none is below `first`.

    The first kernel finds what each block adds to the sum of all, and the largest logit of each group. The k most
    probable tokens are in the k groups with the largest; the second kernel reads only these.
    """
    R, V = logits.shape
    n_blocks, n_groups = triton.cdiv(V, BLOCK), triton.cdiv(V, GROUP)
    sums = torch.empty(R, n_blocks, 2, dtype=torch.float32, device=logits.device)
    peaks = torch.empty(R, n_groups, dtype=torch.float32, device=logits.device)
    _block_peaks_kernel[(R, n_blocks)](
        *(logits, sums, peaks, V, first, n_blocks, n_groups), BLOCK=BLOCK, GROUP=GROUP, num_warps=1
    )
    log_probs = torch.empty(R, k, dtype=torch.float32, device=logits.device)
    tokens = torch.empty(R, k, dtype=torch.int64, device=logits.device)
    _topk_kernel[(R,)](
        *(logits, sums, peaks, log_probs, tokens, V, first, n_blocks, n_groups),
        K=k,
        BLOCKS=triton.next_power_of_2(n_blocks),
        GROUPS=triton.next_power_of_2(n_groups),
        ROWS=triton.next_power_of_2(k),
        GROUP=GROUP,
        num_warps=1,
    )
    return log_probs, tokens


@triton.jit
def _block_peaks_kernel(
    logits_ptr, sums_ptr, peaks_ptr, V, first, n_blocks, n_groups, BLOCK: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    groups = block * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
    ids = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(logits_ptr + row * V + ids, ids < V, float("-inf")).to(tl.float32)
    largest = tl.max(tl.max(x, 1), 0)
    safe = tl.where(largest == float("-inf"), 0.0, largest)
    here = (row * n_blocks + block) * 2
    tl.store(sums_ptr + here, largest)
    tl.store(sums_ptr + here + 1, tl.sum(tl.sum(tl.exp(x - safe), 1), 0))
    peaks = tl.max(tl.where(ids < first, float("-inf"), x), 1)
    tl.store(peaks_ptr + row * n_groups + groups, peaks, groups < n_groups)


@triton.jit
def _topk_kernel(
    logits_ptr, sums_ptr, peaks_ptr, log_probs_ptr, tokens_ptr, V, first, n_blocks, n_groups,
    K: tl.constexpr, BLOCKS: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    groups = tl.arange(0, GROUPS)
    peaks = tl.load(peaks_ptr + row * n_groups + groups, groups < n_groups, float("-inf"))
    log_sum = _log_sum(sums_ptr + row * n_blocks * 2, n_blocks, BLOCKS)
    ranks = _ranks(peaks, groups, groups < n_groups)
    rows, chosen = tl.arange(0, ROWS), tl.full([ROWS], 0, tl.int32)
    for i in tl.static_range(K):
        best = tl.max(ranks, 0)
        chosen = tl.where(rows == i, _index(best), chosen)
        ranks = tl.where(ranks == best, _lowest(), ranks)
    ids = chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    there = (rows < min(K, n_groups))[:, None] & (ids >= first) & (ids < V)
    ranks = _ranks(tl.load(logits_ptr + row * V + ids, there, 0.0).to(tl.float32), ids, there)
    for i in tl.static_range(K):
        best = tl.max(tl.max(ranks, 1), 0)
        tl.store(log_probs_ptr + row * K + i, tl.where(best == _lowest(), float("-inf"), _value(best) - log_sum))
        tl.store(tokens_ptr + row * K + i, tl.where(best == _lowest(), 0, _index(best)).to(tl.int64))
        ranks = tl.where(ranks == best, _lowest(), ranks)


@triton.jit
def _log_sum(sums_ptr, n_blocks, BLOCKS: tl.constexpr):
    blocks = tl.arange(0, BLOCKS)
    largest = tl.load(sums_ptr + blocks * 2, blocks < n_blocks, float("-inf"))
    sums = tl.load(sums_ptr + blocks * 2 + 1, blocks < n_blocks, 0.0)
    top = tl.max(largest, 0)
    return top + tl.log(tl.sum(sums * tl.exp(largest - top), 0))


@triton.jit
def _ranks(x, index, real):
    """Return whole numbers in the order of x, the first of equals the largest: one maximum finds number and index."""
    bits = x.to(tl.int32, bitcast=True)
    ordered = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)
    return tl.where(real, (ordered << 32) | (0x7FFFFFFF - index), _lowest())


@triton.jit
def _lowest():
    """Return what is below the rank of any number."""
    return tl.full([], -(2**63), tl.int64)


@triton.jit
def _value(rank):
    bits = (rank >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _index(rank):
    return 0x7FFFFFFF - (rank & 0x7FFFFFFF).to(tl.int32)
