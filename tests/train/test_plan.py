"""Plans of epochs: every pair once, within the budget, the same for the same seed, with little padding."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.train.plan import plan_epoch, share

LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60).map(np.array)
BUDGET = st.integers(21, 90)
SEED = st.integers(0, 5)


def flat(plan):
    return np.concatenate(plan.batches).tolist()


@given(LENGTHS, BUDGET, SEED)
def test_every_pair_comes_once_and_no_batch_passes_its_budget(lengths, budget, seed):
    plan = plan_epoch(lengths, budget, seed, epoch=0)
    assert sorted(flat(plan)) == list(range(len(lengths)))
    for batch, n_tokens in zip(plan.batches, plan.n_tokens, strict=True):
        assert len(batch) * (lengths[batch].max() + 1) <= budget
        assert n_tokens == (lengths[batch, 1] + 1).sum()


@given(LENGTHS, BUDGET, SEED)
def test_there_are_as_few_batches_as_row_by_row(lengths, budget, seed):
    n_batches, rows = 0, 0
    for size in sorted(lengths.max(axis=1) + 1):
        rows += 1
        if n_batches == 0 or rows * size > budget:
            n_batches, rows = n_batches + 1, 1
    assert len(plan_epoch(lengths, budget, seed, epoch=0).batches) == n_batches


@given(LENGTHS, BUDGET, SEED)
def test_the_same_seed_and_epoch_give_the_same_plan(lengths, budget, seed):
    assert flat(plan_epoch(lengths, budget, seed, 1)) == flat(plan_epoch(lengths, budget, seed, 1))


def test_another_epoch_or_seed_has_another_order():
    lengths = np.random.default_rng(0).integers(1, 20, (50, 2))
    plans = {tuple(flat(plan_epoch(lengths, 60, seed, epoch))) for seed in range(3) for epoch in range(3)}
    assert len(plans) == 9


@given(LENGTHS, st.integers(1, 5))
def test_processes_share_a_batch_without_rest(lengths, world):
    batch = np.arange(len(lengths))
    shares = [share(batch, rank, world) for rank in range(world)]
    assert sorted(np.concatenate(shares).tolist()) == batch.tolist()
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def realistic(n):
    """Lengths as text has them: log-normal, the sides alike."""
    rng = np.random.default_rng(1)
    src = np.exp(rng.normal(3.0, 0.6, n))
    tgt = src * np.exp(rng.normal(0.1, 0.2, n))
    return np.clip(np.stack([src, tgt], axis=1).round().astype(np.int64), 1, 255)


def test_few_slots_are_wasted_on_text():
    lengths = realistic(20_000)
    plan = plan_epoch(lengths, 4096, seed=0, epoch=0)
    slots = sum(len(batch) * (lengths[batch].max(axis=0) + 1).sum() for batch in plan.batches)
    wasted = 1 - (lengths + 1).sum() / slots
    # 7.6 % of both sides together: rows go by the longer side, and the shorter is filled up.
    assert wasted < 0.09
    assert np.mean(plan.n_tokens) > 0.93 * 4096


def test_a_long_text_is_planned_in_no_time():
    lengths = realistic(1_000_000)
    start = time.process_time()
    plan_epoch(lengths, 4096, seed=0, epoch=0)
    assert time.process_time() - start < 3.0


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match="batch_tokens must hold the longest sentence, 9 pieces, got 8"):
        plan_epoch(np.array([[3, 8]]), 8, seed=0, epoch=0)
    with pytest.raises(ValueError, match="no pairs"):
        plan_epoch(np.zeros((0, 2), dtype=np.int64), 8, seed=0, epoch=0)
