"""One beam-search step and the traceback."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.padding import EOS

NOTHING = -1e300  # stands for −∞ among continuations, so that one that was taken can be less


def advance(beams: Any, slots: Any, gains: Tensor, tokens: Tensor) -> None:
    """Does what `BeamState.advance` and `Slots.advance` do, from the k best tokens of each hypothesis, (B N, k)."""
    (B, N), k, T = beams.totals.shape, gains.shape[1], slots.origins.shape[2]
    record = beams.history
    _advance[(B,)](
        *(gains, tokens, beams.tokens, beams.totals, beams.best_scores, beams.n_finished, beams.limits, beams.final),
        *(record.tokens, record.parents, record.log_probs, record.totals),
        *(record.end_parents, record.end_log_probs, record.end_totals, slots.origins, slots.lengths),
        *(T, beams.length_penalty),
        N=N,
        K=k,
        M=beams.best_scores.shape[1],
        BLOCK=triton.next_power_of_2(N * k),
        ROWS=triton.next_power_of_2(N),
        BEST=triton.next_power_of_2(beams.best_scores.shape[1]),
        EOS=EOS,
        NOTHING=NOTHING,
        num_warps=1,
    )


@triton.jit
def _advance(
    gains_at, tokens_at, last_at, totals_at, standing_at, finished_at, limits_at, over_at,
    on_tokens_at, on_parents_at, on_gains_at, on_totals_at,
    end_parents_at, end_gains_at, end_totals_at, ancestors_at, ages_at,
    T, penalty,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, BEST: tl.constexpr,
    EOS: tl.constexpr, NOTHING: tl.constexpr,
):  # fmt: skip
    slot = tl.program_id(0).to(tl.int64)
    age = tl.load(ages_at + slot).to(tl.int64)
    finished = tl.load(finished_at + slot)
    places = tl.arange(0, BLOCK)
    said = tl.load(tokens_at + slot * N * K + places, places < N * K, 0)
    gained, sums = _continuations(gains_at, totals_at, slot, places, N, K, NOTHING)
    scores, rows = tl.arange(0, BEST), tl.arange(0, ROWS)
    standing = tl.load(standing_at + slot * M + scores, scores < M, float("inf"))
    parents = tl.zeros([ROWS], tl.int64)
    n_on, best = tl.full([], 0, tl.int32), tl.full([], float("-inf"), tl.float64)
    column = (slot * T + age) * N
    for i in tl.static_range(2 * N):
        sums, at, token, gain, total = _taken(sums, places, said, gained, NOTHING)
        parent = at // K
        if i < N:
            tl.store(end_parents_at + column + i, parent)
            tl.store(end_gains_at + column + i, gain)
            ended = tl.where(token == EOS, total, float("-inf"))
            tl.store(end_totals_at + column + i, ended)
            finished += (ended > float("-inf")).to(tl.int64)
            better = tl.maximum(standing, ended / _power(age + 1, penalty))
            standing = tl.where(scores == tl.argmin(standing, 0), better, standing)
        goes = (token != EOS) & (n_on < N)
        tl.store(on_tokens_at + column + n_on, token, goes)
        tl.store(on_parents_at + column + n_on, parent, goes)
        tl.store(on_gains_at + column + n_on, gain, goes)
        tl.store(on_totals_at + column + n_on, total, goes)
        tl.store(last_at + slot * N + n_on, token, goes)
        tl.store(totals_at + slot * N + n_on, total, goes)
        best = tl.where(goes, tl.maximum(best, total), best)
        parents = tl.where((rows == n_on) & goes, parent, parents)
        n_on += goes.to(tl.int32)
    over = tl.load(over_at + slot) != 0
    after = tl.where(over, age, age + 1)
    _inherit(ancestors_at, slot, parents, rows, after, T, N)
    decided = _decided(best, finished, standing, tl.load(limits_at + slot), age, penalty, N)
    tl.debug_barrier()  # all has been read before any of it is written
    tl.store(standing_at + slot * M + scores, standing, scores < M)
    tl.store(finished_at + slot, finished)
    tl.store(over_at + slot, over | decided)
    tl.store(ages_at + slot, after)


@triton.jit
def _continuations(gains_at, totals_at, slot, places, N: tl.constexpr, K: tl.constexpr, NOTHING: tl.constexpr):
    """Gives what each continuation adds, and what it then has."""
    inside = places < N * K
    gained = tl.load(gains_at + slot * N * K + places, inside, float("-inf")).to(tl.float64)
    before = tl.load(totals_at + slot * N + places // K, inside, float("-inf"))
    return gained, tl.where(inside, tl.maximum(before + gained, NOTHING), float("-inf"))


@triton.jit
def _taken(sums, places, said, gained, NOTHING: tl.constexpr):
    """Gives the best continuation that is left, and the sums without it."""
    total, at = tl.max(sums, 0, return_indices=True)
    here = places == at
    token, gain = tl.sum(tl.where(here, said, 0), 0), tl.sum(tl.where(here, gained, 0.0), 0)
    total = tl.where(total == NOTHING, float("-inf"), total)
    return tl.where(here, float("-inf"), sums), at, token, gain, total


@triton.jit
def _power(length, penalty):
    return tl.exp(penalty * tl.log(length.to(tl.float64)))


@triton.jit
def _decided(best, finished, standing, limit, age, penalty, N: tl.constexpr):
    """Tells whether a sentence is over, by the rule of `Standing.decided`."""
    bound = best / _power(tl.where(penalty > 0, limit, age + 2), penalty)
    return (finished >= N) | (bound <= tl.min(standing, 0)) | (limit <= age + 1)


@triton.jit
def _inherit(ancestors_at, slot, parents, rows, after, T, N: tl.constexpr):
    """Lets each hypothesis take over its parent's list of ancestors, with itself at the end."""
    for first in range(0, T, 64):
        columns = first + tl.arange(0, 64)
        there = (rows < N)[:, None] & (columns < T)[None, :]
        inherited = tl.load(ancestors_at + ((slot * N + parents) * T)[:, None] + columns[None, :], there, 0)
        tl.debug_barrier()  # all of it is read before any is written
        inherited = tl.where(columns[None, :] == after, rows[:, None], inherited)
        tl.store(ancestors_at + ((slot * N + rows) * T)[:, None] + columns[None, :], inherited, there)


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
        *(record.tokens, record.parents, record.log_probs, record.totals),
        *(record.end_parents, record.end_log_probs, record.end_totals),
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
