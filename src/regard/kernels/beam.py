"""One step of beam search in all slots, and the traceback of finished sentences."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from regard.padding import EOS

EARLY_STOPPING = ("full", "heuristic", "never")  # as in search/beam.py, which is below
LOWEST = -1e300  # stands for −∞ among continuations, so that one that was taken can be less


class BeamArgs(NamedTuple):
    """The hypotheses of B slots with beam N, and the scores of the M best that ended."""

    tokens: Tensor  # (B, N)
    totals: Tensor  # (B, N)
    best_scores: Tensor  # (B, M)
    n_finished: Tensor  # (B)
    limits: Tensor  # (B)
    final: Tensor  # (B)


class HistoryArgs(NamedTuple):
    """What was decided at each step, (B, T, N) each: which hypotheses continue, and which end."""

    tokens: Tensor
    parents: Tensor
    log_probs: Tensor
    totals: Tensor
    end_parents: Tensor
    end_log_probs: Tensor
    end_totals: Tensor


class Best(NamedTuple):
    """A continuation taken out of all: its index, token, log-probability and total."""

    index: tl.tensor
    token: tl.tensor
    log_prob: tl.tensor
    total: tl.tensor


def advance(
    beams: BeamArgs,
    history: HistoryArgs,
    origins: Tensor,
    lengths: Tensor,
    log_probs: Tensor,
    tokens: Tensor,
    length_penalty: float,
    early_stopping: str = "full",
) -> None:
    """Continue with the N best of the k most probable tokens of each hypothesis, (B N, k), in place.

    Origins are (B, N, T), lengths (B). It does what `BeamState.advance` and `Slots.advance` do.
    """
    (B, N), k, M = beams.totals.shape, log_probs.shape[1], beams.best_scores.shape[1]
    _advance_kernel[(B,)](
        *(log_probs, tokens, beams, history, origins, lengths, origins.shape[2], length_penalty),
        N=N,
        K=k,
        M=M,
        RULE=EARLY_STOPPING.index(early_stopping),
        BLOCK=triton.next_power_of_2(N * k),
        ROWS=triton.next_power_of_2(N),
        BEST=triton.next_power_of_2(M),
        EOS=EOS,
        LOWEST=LOWEST,
        num_warps=1,
    )


@triton.jit
def _advance_kernel(
    log_probs_ptr, tokens_ptr, beams, history, origins_ptr, lengths_ptr, T, penalty,
    N: tl.constexpr, K: tl.constexpr, M: tl.constexpr, RULE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
    BEST: tl.constexpr, EOS: tl.constexpr, LOWEST: tl.constexpr,
):  # fmt: skip
    slot = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths_ptr + slot).to(tl.int64)
    finished = tl.load(beams.n_finished + slot)
    index = tl.arange(0, BLOCK)
    tokens = tl.load(tokens_ptr + slot * N * K + index, index < N * K, 0)
    log_probs, sums = _continuations(log_probs_ptr, beams.totals, slot, index, N, K, LOWEST)
    scores, rows = tl.arange(0, BEST), tl.arange(0, ROWS)
    best = tl.load(beams.best_scores + slot * M + scores, scores < M, float("inf"))
    parents = tl.zeros([ROWS], tl.int64)
    n_on, highest = tl.full([], 0, tl.int32), tl.full([], float("-inf"), tl.float64)
    column = (slot * T + length) * N
    for i in tl.static_range(2 * N):
        sums, taken = _take_best(sums, index, tokens, log_probs, LOWEST)
        parent = taken.index // K
        if i < N:
            tl.store(history.end_parents + column + i, parent)
            tl.store(history.end_log_probs + column + i, taken.log_prob)
            ended = tl.where(taken.token == EOS, taken.total, float("-inf"))
            tl.store(history.end_totals + column + i, ended)
            finished += (ended > float("-inf")).to(tl.int64)
            better = tl.maximum(best, ended / _power(length + 1, penalty))
            best = tl.where(scores == tl.argmin(best, 0), better, best)
        goes_on = (taken.token != EOS) & (n_on < N)
        tl.store(history.tokens + column + n_on, taken.token, goes_on)
        tl.store(history.parents + column + n_on, parent, goes_on)
        tl.store(history.log_probs + column + n_on, taken.log_prob, goes_on)
        tl.store(history.totals + column + n_on, taken.total, goes_on)
        tl.store(beams.tokens + slot * N + n_on, taken.token, goes_on)
        tl.store(beams.totals + slot * N + n_on, taken.total, goes_on)
        highest = tl.where(goes_on, tl.maximum(highest, taken.total), highest)
        parents = tl.where((rows == n_on) & goes_on, parent, parents)
        n_on += goes_on.to(tl.int32)
    was_final = tl.load(beams.final + slot) != 0
    after = tl.where(was_final, length, length + 1)
    _inherit(origins_ptr, slot, parents, rows, after, T, N)
    final = _is_final(highest, finished, best, tl.load(beams.limits + slot), length, penalty, N, RULE)
    tl.debug_barrier()  # all has been read before any of it is written
    tl.store(beams.best_scores + slot * M + scores, best, scores < M)
    tl.store(beams.n_finished + slot, finished)
    tl.store(beams.final + slot, was_final | final)
    tl.store(lengths_ptr + slot, after)


@triton.jit
def _continuations(log_probs_ptr, totals_ptr, slot, index, N: tl.constexpr, K: tl.constexpr, LOWEST: tl.constexpr):
    """Return what each continuation adds, and its total."""
    inside = index < N * K
    log_probs = tl.load(log_probs_ptr + slot * N * K + index, inside, float("-inf")).to(tl.float64)
    before = tl.load(totals_ptr + slot * N + index // K, inside, float("-inf"))
    return log_probs, tl.where(inside, tl.maximum(before + log_probs, LOWEST), float("-inf"))


@triton.jit
def _take_best(sums, index, tokens, log_probs, LOWEST: tl.constexpr):
    """Return the sums without the best continuation that is left, and that one."""
    total, at = tl.max(sums, 0, return_indices=True)
    here = index == at
    token, log_prob = tl.sum(tl.where(here, tokens, 0), 0), tl.sum(tl.where(here, log_probs, 0.0), 0)
    total = tl.where(total == LOWEST, float("-inf"), total)
    return tl.where(here, float("-inf"), sums), Best(at, token, log_prob, total)


@triton.jit
def _power(length, penalty):
    return tl.exp(penalty * tl.log(length.to(tl.float64)))


@triton.jit
def _is_final(highest, finished, best, limit, length, penalty, N: tl.constexpr, RULE: tl.constexpr):
    """Return whether a sentence is final, by the rule of `BestFinished.is_final`."""
    bound = highest / _power(tl.where(penalty > 0, limit, length + 2), penalty)
    worst = tl.min(best, 0)
    final = (bound <= worst) | (limit <= length + 1)
    if RULE == 0:
        final = final | (finished >= N)
    if RULE == 1:
        final = final | (highest / _power(length + 1, penalty) <= worst)
    return final


@triton.jit
def _inherit(origins_ptr, slot, parents, rows, after, T, N: tl.constexpr):
    """Give each hypothesis its parent's origins, with itself at the end."""
    for first in range(0, T, 64):
        columns = first + tl.arange(0, 64)
        inside = (rows < N)[:, None] & (columns < T)[None, :]
        inherited = tl.load(origins_ptr + ((slot * N + parents) * T)[:, None] + columns[None, :], inside, 0)
        tl.debug_barrier()  # all of it is read before any is written
        inherited = tl.where(columns[None, :] == after, rows[:, None], inherited)
        tl.store(origins_ptr + ((slot * N + rows) * T)[:, None] + columns[None, :], inherited, inside)


def traceback(
    history: HistoryArgs, slots: Tensor, lengths: Tensor, n_best: int, length_penalty: float
) -> tuple[Tensor, Tensor]:
    """Return the tokens of the best hypotheses of the sentences in M slots, and their log-probabilities.

    Tokens are (M, n_best, 1 + T): those of each hypothesis, EOS included where it ended, come after their number, 0
    where there is none. Log-probabilities are (M, n_best, T).
    """
    _, T, N = history.tokens.shape
    M, device = len(slots), slots.device
    tokens = torch.empty(M, n_best, 1 + T, dtype=torch.int32, device=device)
    log_probs = torch.empty(M, n_best, T, dtype=torch.float64, device=device)
    _traceback_kernel[(M, n_best)](
        *(history, slots, lengths, tokens, log_probs, T, length_penalty),
        N=N,
        BLOCK=triton.next_power_of_2(T * N),
        EOS=EOS,
        num_warps=4,
    )
    return tokens, log_probs


@triton.jit
def _traceback_kernel(
    history, slots_ptr, lengths_ptr, tokens_ptr, log_probs_ptr, T, penalty,
    N: tl.constexpr, BLOCK: tl.constexpr, EOS: tl.constexpr,
):  # fmt: skip
    sentence, rank = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots_ptr + sentence)
    length = tl.load(lengths_ptr + slot).to(tl.int32)
    base, out = slot * T * N, sentence * tl.num_programs(1) + rank
    tokens_ptr, log_probs_ptr = tokens_ptr + out * (1 + T), log_probs_ptr + out * T
    n_ended, end = _end(history.end_totals + base, rank, length, penalty, N, BLOCK)
    ended = rank < n_ended
    unfinished = tl.where(ended, 0, rank - n_ended)  # hypotheses are in the order of their totals
    last = base + (length - 1) * N + unfinished
    exists = ended | (tl.load(history.totals + last, unfinished < N, float("-inf")) > float("-inf"))
    n = tl.where(ended, end // N, tl.where(exists, length, 0))
    row = tl.where(ended, tl.load(history.end_parents + base + end), unfinished)
    tl.store(tokens_ptr, n + ended.to(tl.int32))
    tl.store(tokens_ptr + 1 + n, EOS, ended)
    tl.store(log_probs_ptr + n, tl.load(history.end_log_probs + base + end), ended)
    for back in range(n):
        step = n - 1 - back
        at = base + step * N + row
        tl.store(tokens_ptr + 1 + step, tl.load(history.tokens + at))
        tl.store(log_probs_ptr + step, tl.load(history.log_probs + at))
        row = tl.load(history.parents + at)


@triton.jit
def _end(end_totals_ptr, rank, length, penalty, N: tl.constexpr, BLOCK: tl.constexpr):
    """Return how many hypotheses ended, and where the one of this rank did."""
    index = tl.arange(0, BLOCK)
    totals = tl.load(end_totals_ptr + index, index < length * N, float("-inf"))
    scores = totals / tl.exp(penalty * tl.log((index // N + 1).to(tl.float64)))
    n_ended = tl.sum((scores > float("-inf")).to(tl.int32), 0)
    for _ in range(rank):
        scores = tl.where(index == tl.argmax(scores, 0), float("-inf"), scores)
    return n_ended, tl.argmax(scores, 0)
