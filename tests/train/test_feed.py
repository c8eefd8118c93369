"""The feed of a run: all pairs, in fixed or tight shapes, from any place on, whoever makes it."""

import threading
import time

import numpy as np
import pytest
import torch

from regard.config import Settings, merged, settings
from regard.text.store import IdStore, write_store
from regard.train.distributed import Team
from regard.train.feed import _ahead, feed

from .tiny import TABLES

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
    return settings(Settings, merged(TABLES, {"train": train}))


def all_groups(store, made, team=Team(), start=(0, 0)):
    return list(feed(store, made, team, CPU, start))


def named(groups):
    """Gives the pairs of groups by their first ids, the rows that say nothing left out."""
    batches = [part.batch(CPU, group.n_tokens) for group in groups for part in group.parts]
    return [
        int(row[0]) - 4
        for batch in batches
        for row, real in zip(batch.src.ids, batch.tgt.real, strict=True)
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
        assert group.n_tokens == int(batch.tgt.real.sum())
        assert batch.tgt.real.any(dim=0).all()
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
    parts = [all_groups(store, make(max_epochs=1), Team(rank, 2)) for rank in range(2)]
    assert [g.n_tokens for g in whole] == [g.n_tokens for g in parts[0]] == [g.n_tokens for g in parts[1]]
    assert sorted(named(parts[0]) + named(parts[1])) == list(range(N))


def test_a_process_without_a_row_takes_part_with_one_that_says_nothing(store):
    groups = all_groups(store, make(batch_tokens=12, max_epochs=1), Team(rank=6, world=7))
    batches = [group.parts[0].batch(CPU, group.n_tokens) for group in groups]
    assert any(not batch.tgt.real.any() for batch in batches)
    assert all(len(batch.src.ids) >= 1 for batch in batches)


def test_what_is_made_ahead_comes_in_order_and_not_too_far():
    made = []

    def items():
        for i in range(30):
            made.append(i)
            yield i

    ahead = _ahead(items(), depth=3)
    assert next(ahead) == 0
    time.sleep(0.2)
    assert len(made) <= 6
    assert list(ahead) == list(range(1, 30))


def test_what_goes_wrong_ahead_is_raised_here():
    def items():
        yield 1
        raise ValueError("a bad batch")

    ahead = _ahead(items(), depth=3)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="a bad batch"):
        next(ahead)


def test_the_thread_ends_when_nobody_asks_any_more():
    ahead = _ahead(iter(range(10**9)), depth=2)
    next(ahead)
    ahead.close()
    deadline = time.monotonic() + 5
    while any(thread.name == "feed" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
