"""Plans of epochs: every pair once, within the budget, the same for the same seed, with little padding."""

import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.train.plan import choose_widths, fitting, plan_epoch, round_up, share

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
def test_a_batch_fits_its_shape_and_all_but_one_fill_its_rows(lengths, budget, seed):
    plan = plan_epoch(lengths, budget, seed, epoch=0)
    for batch, shape in zip(plan.batches, plan.shapes, strict=True):
        longest = lengths[batch].max(axis=0) + 1
        assert len(batch) <= shape.rows
        assert (longest <= (shape.src, shape.tgt)).all()
        assert shape.rows * max(shape.src, shape.tgt) <= budget
    assert sum(len(batch) < shape.rows for batch, shape in zip(plan.batches, plan.shapes, strict=True)) <= 1


def test_sizes_beyond_all_widths_are_rounded_up():
    sizes = np.arange(1, 1000)
    widths = round_up(sizes)
    assert (widths >= sizes).all()
    assert (widths - sizes < np.maximum(4, sizes / 4)).all()
    assert len(np.unique(widths)) < 40
    assert fitting(np.array([1, 3, 4, 9, 10, 33]), np.array([3, 9])).tolist() == [3, 3, 9, 9, 12, 40]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4))
def test_the_widths_leave_as_few_slots_empty_as_any_would(sizes, n_widths):
    sizes = np.array(sizes)
    found = choose_widths(sizes, n_widths)
    choices = combinations(sorted(set(sizes.tolist())), min(n_widths, len(set(sizes.tolist()))))
    best = min(fitting(sizes, np.array(c)).sum() for c in choices if c[-1] == sizes.max())
    assert len(found) <= n_widths
    assert found[-1] == sizes.max()
    assert fitting(sizes, found).sum() == best


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
    # 7.6 % of both sides together: rows go by the width of the longer side, and the shorter is filled up.
    assert wasted < 0.085
    assert np.mean(plan.n_tokens) > 0.86 * 4096
    assert len(set(plan.shapes)) < 80


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
