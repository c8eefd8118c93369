"""The best hypotheses of sentences that are over, followed back on the GPU: little has to be copied from it then."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.batch import EOS


def follow_back(record: Any, places: Tensor, ages: Tensor, n_best: int, penalty: float) -> tuple[Tensor, Tensor]:
    """Finds what `best_hypotheses` finds for the sentences in some places: their tokens, and what each gained.

    Tokens are (M, n_best, 1 + T): before those of each hypothesis, EOS included where it ended, stands their number, 0
    where there is none. Gains are (M, n_best, T).
    """
    _, T, N = record.tokens.shape
    M, device = len(places), places.device
    tokens = torch.empty(M, n_best, 1 + T, dtype=torch.int32, device=device)
    gains = torch.empty(M, n_best, T, dtype=torch.float64, device=device)
    _follow_back[(M, n_best)](
        *(record.tokens, record.parents, record.gains, record.totals),
        *(record.end_parents, record.end_gains, record.end_totals),
        *(places, ages, tokens, gains, T, penalty),
        N=N,
        BLOCK=triton.next_power_of_2(T * N),
        EOS=EOS,
        num_warps=4,
    )
    return tokens, gains


@triton.jit
def _follow_back(
    tokens_at, parents_at, gains_at, totals_at, end_parents_at, end_gains_at, end_totals_at,
    places_at, ages_at, found_at, gained_at, T, penalty,
    N: tl.constexpr, BLOCK: tl.constexpr, EOS: tl.constexpr,
):  # fmt: skip
    sentence, rank = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(places_at + sentence)
    length = tl.load(ages_at + slot).to(tl.int32)
    base, out = slot * T * N, sentence * tl.num_programs(1) + rank
    found_at, gained_at = found_at + out * (1 + T), gained_at + out * T
    n_ended, end = _end(end_totals_at + base, rank, length, penalty, N, BLOCK)
    ended = rank < n_ended
    unfinished = tl.where(ended, 0, rank - n_ended)  # hypotheses stand in the order of their totals
    last = base + (length - 1) * N + unfinished
    there = ended | (tl.load(totals_at + last, unfinished < N, float("-inf")) > float("-inf"))
    n = tl.where(ended, end // N, tl.where(there, length, 0))
    row = tl.where(ended, tl.load(end_parents_at + base + end), unfinished)
    tl.store(found_at, n + ended.to(tl.int32))
    tl.store(found_at + 1 + n, EOS, ended)
    tl.store(gained_at + n, tl.load(end_gains_at + base + end), ended)
    for back in range(n):
        age = n - 1 - back
        at = base + age * N + row
        tl.store(found_at + 1 + age, tl.load(tokens_at + at))
        tl.store(gained_at + age, tl.load(gains_at + at))
        row = tl.load(parents_at + at)


@triton.jit
def _end(end_totals_at, rank, length, penalty, N: tl.constexpr, BLOCK: tl.constexpr):
    """Gives how many hypotheses ended, and where the one of this rank did."""
    places = tl.arange(0, BLOCK)
    totals = tl.load(end_totals_at + places, places < length * N, float("-inf"))
    scores = totals / tl.exp(penalty * tl.log((places // N + 1).to(tl.float64)))
    n_ended = tl.sum((scores > float("-inf")).to(tl.int32), 0)
    for _ in range(rank):
        scores = tl.where(places == tl.argmax(scores, 0), float("-inf"), scores)
    return n_ended, tl.argmax(scores, 0)
