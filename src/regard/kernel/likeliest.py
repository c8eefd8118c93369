"""The likeliest tokens of each row and their log-probabilities, of logits that are read once but for a few groups."""

import torch
import triton
import triton.language as tl
from torch import Tensor

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
