"""The feed of a run: all pairs, in fixed or tight shapes, from any place on, whoever makes it.

Plans of epochs: every pair once, within the budget, the same for the same seed, with little padding.
"""

import threading
import time
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.config import Settings, merge, parse_settings
from regard.data.store import IdStore, write_store
from regard.train.batching import (
    _run_ahead,
    choose_widths,
    make_batches,
    prefetch,
    rank_rows,
    round_to_widths,
    round_up,
)
from regard.train.distributed import World
from tests.train.tiny import TABLES

CPU = torch.device("cpu")
N = 53


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "train"
    rng = np.random.default_rng(0)
    with write_store(folder, 100) as writer:
        for i in range(N):  # the first id names the pair
            writer.add(*([4 + i, *rng.integers(4, 90, rng.integers(0, 9)).tolist()] for _ in range(2)))
    return IdStore(folder)


def make(**changes):
    train = {"batch_tokens": 48, "max_epochs": 2, "max_steps": "none", **changes}
    return parse_settings(Settings, merge(TABLES, {"train": train}))


def all_groups(store, settings, team=World(), start=(0, 0)):
    return list(prefetch(store, settings, team, CPU, start))


def named(groups):
    """Return the pairs of groups by their first ids, the rows that say nothing left out."""
    batches = [part.batch(CPU, group.n_tokens) for group in groups for part in group.parts]
    return [
        int(row[0]) - 4
        for batch in batches
        for row, real in zip(batch.src.ids, batch.tgt.token_mask, strict=True)
        if real.any()
    ]


def test_every_epoch_has_every_pair_once_in_another_order(store):
    groups = all_groups(store, make())
    first, second = (named([group for group in groups if group.epoch == epoch]) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second


def test_batches_are_tight_and_tokens_are_counted(store):
    for group in all_groups(store, make()):
        (batch,) = [part.batch(CPU, group.n_tokens) for part in group.parts]
        assert group.n_tokens == int(batch.tgt.token_mask.sum())
        assert batch.tgt.token_mask.any(dim=0).all()
        assert (torch.arange(batch.src.ids.shape[1]) < batch.src.lengths[:, None]).any(dim=0).all()
        full = bool((batch.src.lengths == batch.src.ids.shape[1]).all())
        assert group.parts[0].full == full == (batch.src.mask.key_lengths is None)


def test_it_goes_on_from_any_place(store):
    everything = all_groups(store, make(accumulate=2))
    for n in (1, len(everything) // 2, len(everything) - 1):
        stands = everything[n - 1]
        rest = all_groups(store, make(accumulate=2), start=(stands.epoch, stands.batch))
        assert named(rest) == named(everything[n:])
        assert [(g.epoch, g.batch, g.n_tokens, g.first) for g in rest] == (
            [(g.epoch, g.batch, g.n_tokens, g.first) for g in everything[n:]]
        )


def test_several_processes_share_every_batch(store):
    whole = all_groups(store, make(batch_tokens=96, max_epochs=1))
    parts = [all_groups(store, make(max_epochs=1), World(rank, 2)) for rank in range(2)]
    assert [g.n_tokens for g in whole] == [g.n_tokens for g in parts[0]] == [g.n_tokens for g in parts[1]]
    assert sorted(named(parts[0]) + named(parts[1])) == list(range(N))


def test_a_process_without_a_row_takes_part_with_one_that_says_nothing(store):
    groups = all_groups(store, make(batch_tokens=12, max_epochs=1), World(rank=6, size=7))
    batches = [group.parts[0].batch(CPU, group.n_tokens) for group in groups]
    assert any(not batch.tgt.token_mask.any() for batch in batches)
    assert all(len(batch.src.ids) >= 1 for batch in batches)


def test_what_is_made_ahead_comes_in_order_and_not_too_far():
    settings = []

    def items():
        for i in range(30):
            settings.append(i)
            yield i

    ahead = _run_ahead(items(), depth=3)
    assert next(ahead) == 0
    time.sleep(0.2)
    assert len(settings) <= 6
    assert list(ahead) == list(range(1, 30))


def test_what_goes_wrong_ahead_is_raised_here():
    def items():
        yield 1
        raise ValueError("a bad batch")

    ahead = _run_ahead(items(), depth=3)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="a bad batch"):
        next(ahead)


def test_the_thread_ends_when_nobody_asks_any_more():
    ahead = _run_ahead(iter(range(10**9)), depth=2)
    next(ahead)
    ahead.close()
    deadline = time.monotonic() + 5
    while any(thread.name == "prefetch" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


LENGTHS = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=60).map(np.array)
BUDGET = st.integers(21, 90)
SEED = st.integers(0, 5)


def flat(plan):
    return np.concatenate(plan.batches).tolist()


@given(LENGTHS, BUDGET, SEED)
def test_every_pair_comes_once_and_no_batch_passes_its_budget(lengths, budget, seed):
    plan = make_batches(lengths, budget, seed, epoch=0)
    assert sorted(flat(plan)) == list(range(len(lengths)))
    for batch, n_tokens in zip(plan.batches, plan.n_tokens, strict=True):
        assert len(batch) * (lengths[batch].max() + 1) <= budget
        assert n_tokens == (lengths[batch, 1] + 1).sum()


@given(LENGTHS, BUDGET, SEED)
def test_a_batch_fits_its_shape_and_all_but_one_fill_its_rows(lengths, budget, seed):
    plan = make_batches(lengths, budget, seed, epoch=0)
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
    assert round_to_widths(np.array([1, 3, 4, 9, 10, 33]), np.array([3, 9])).tolist() == [3, 3, 9, 9, 12, 40]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4))
def test_the_widths_leave_as_few_slots_empty_as_any_would(sizes, n_widths):
    sizes = np.array(sizes)
    result = choose_widths(sizes, n_widths)
    choices = combinations(sorted(set(sizes.tolist())), min(n_widths, len(set(sizes.tolist()))))
    best = min(round_to_widths(sizes, np.array(c)).sum() for c in choices if c[-1] == sizes.max())
    assert len(result) <= n_widths
    assert result[-1] == sizes.max()
    assert round_to_widths(sizes, result).sum() == best


@given(LENGTHS, BUDGET, SEED)
def test_the_same_seed_and_epoch_give_the_same_plan(lengths, budget, seed):
    assert flat(make_batches(lengths, budget, seed, 1)) == flat(make_batches(lengths, budget, seed, 1))


def test_another_epoch_or_seed_has_another_order():
    lengths = np.random.default_rng(0).integers(1, 20, (50, 2))
    plans = {tuple(flat(make_batches(lengths, 60, seed, epoch))) for seed in range(3) for epoch in range(3)}
    assert len(plans) == 9


@given(LENGTHS, st.integers(1, 5))
def test_processes_share_a_batch_without_rest(lengths, world):
    batch = np.arange(len(lengths))
    shares = [rank_rows(batch, rank, world) for rank in range(world)]
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
    plan = make_batches(lengths, 4096, seed=0, epoch=0)
    slots = sum(len(batch) * (lengths[batch].max(axis=0) + 1).sum() for batch in plan.batches)
    wasted = 1 - (lengths + 1).sum() / slots
    # 7.6 % of both sides together: rows go by the width of the longer side, and the shorter is filled up.
    assert wasted < 0.085
    assert np.mean(plan.n_tokens) > 0.86 * 4096
    assert len(set(plan.shapes)) < 80


def test_a_long_text_is_planned_in_no_time():
    lengths = realistic(1_000_000)
    start = time.process_time()
    make_batches(lengths, 4096, seed=0, epoch=0)
    assert time.process_time() - start < 3.0


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match="batch_tokens must hold the longest sentence, 9 tokens, got 8"):
        make_batches(np.array([[3, 8]]), 8, seed=0, epoch=0)
    with pytest.raises(ValueError, match="batches need 1 or more pairs, got 0"):
        make_batches(np.zeros((0, 2), dtype=np.int64), 8, seed=0, epoch=0)
