"""The likeliest tokens of each row and their log-probabilities: logits are read once, and no table is written."""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, WARPS = 1024, 1  # logits that one program looks through, and its warps


def likeliest_tokens(logits: Tensor, k: int, first: int) -> tuple[Tensor, Tensor]:
    """Gives the k largest log-probabilities of each row, largest first, and their tokens; none is below `first`.

    Each program finds the k largest of its block, by taking the largest away k times, and what its block adds to the
    sum of all; a second kernel puts the blocks together.
    """
    R, V = logits.shape
    n_blocks = triton.cdiv(V, BLOCK)
    sums = torch.empty(R, n_blocks, 2, dtype=torch.float32, device=logits.device)
    values = torch.empty(R, n_blocks, k, dtype=torch.float32, device=logits.device)
    tokens = torch.empty(R, n_blocks, k, dtype=torch.int32, device=logits.device)
    _in_blocks[(R, n_blocks)](logits, sums, values, tokens, V, first, n_blocks, K=k, BLOCK=BLOCK, num_warps=WARPS)
    gains = torch.empty(R, k, dtype=torch.float32, device=logits.device)
    said = torch.empty(R, k, dtype=torch.int64, device=logits.device)
    _of_blocks[(R,)](
        *(sums, values, tokens, gains, said, n_blocks),
        K=k,
        BLOCKS=triton.next_power_of_2(n_blocks),
        FOUND=triton.next_power_of_2(n_blocks * k),
        num_warps=1,
    )
    return gains, said


@triton.jit
def _in_blocks(
    logits_at, sums_at, values_at, tokens_at, V, first, n_blocks, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    places = tl.arange(0, BLOCK)
    ids = block * BLOCK + places
    given = tl.load(logits_at + row * V + ids, ids < V, float("-inf"))
    x = given.to(tl.float32)
    largest = tl.max(x, 0)
    safe = tl.where(largest == float("-inf"), 0.0, largest)
    here = row * n_blocks + block
    tl.store(sums_at + here * 2, largest)
    tl.store(sums_at + here * 2 + 1, tl.sum(tl.exp(x - safe), 0))
    ranks = _ranks(tl.where(ids < first, float("-inf"), given), BLOCK - 1 - places)
    for i in tl.static_range(K):
        best = tl.max(ranks, 0)
        value, left = _ranked(best, logits_at.dtype.element_ty)
        tl.store(values_at + here * K + i, value)
        tl.store(tokens_at + here * K + i, block * BLOCK + BLOCK - 1 - left)
        ranks = tl.where(ranks == best, _least(ranks), ranks)


@triton.jit
def _ranks(x, places):
    """Gives whole numbers in the order of x, with the place in their lower half: one maximum then finds both."""
    if x.dtype.primitive_bitwidth == 16:
        bits = x.to(tl.int16, bitcast=True).to(tl.int32)
        return ((bits ^ ((bits >> 15) & 0x7FFF)) << 16) | places
    else:
        bits = x.to(tl.int32, bitcast=True).to(tl.int64)
        return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)) << 32) | places


@triton.jit
def _ranked(rank, dtype: tl.constexpr):
    """Gives back the number and the place."""
    if dtype.primitive_bitwidth == 16:
        bits = rank >> 16
        bits = (bits ^ ((bits >> 15) & 0x7FFF)).to(tl.int16)
        return bits.to(dtype, bitcast=True).to(tl.float32), rank & 0xFFFF
    else:
        bits = rank >> 32
        bits = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int32)
        return bits.to(dtype, bitcast=True), (rank & 0xFFFF).to(tl.int32)


@triton.jit
def _least(ranks):
    """Gives what is below the rank of any number."""
    if ranks.dtype.primitive_bitwidth == 32:
        return tl.full([], -(2**31), tl.int32)
    else:
        return tl.full([], -(2**63), tl.int64)


@triton.jit
def _of_blocks(
    sums_at, values_at, tokens_at, gains_at, said_at, n_blocks,
    K: tl.constexpr, BLOCKS: tl.constexpr, FOUND: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.arange(0, BLOCKS)
    largest = tl.load(sums_at + (row * n_blocks + blocks) * 2, blocks < n_blocks, float("-inf"))
    sums = tl.load(sums_at + (row * n_blocks + blocks) * 2 + 1, blocks < n_blocks, 0.0)
    top = tl.max(largest, 0)
    log_sum = top + tl.log(tl.sum(sums * tl.exp(largest - top), 0))
    places = tl.arange(0, FOUND)
    inside = places < n_blocks * K
    x = tl.load(values_at + row * n_blocks * K + places, inside, float("-inf"))
    tokens = tl.load(tokens_at + row * n_blocks * K + places, inside, 0)
    for i in tl.static_range(K):
        value, at = tl.max(x, 0, return_indices=True)
        tl.store(gains_at + row * K + i, value - log_sum)
        tl.store(said_at + row * K + i, tl.sum(tl.where(places == at, tokens, 0), 0).to(tl.int64))
        x = tl.where(places == at, float("-inf"), x)
