"""Epochs: each pair as often as its source weighs, in segmentations that do not recur before all were seen."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.epoch import draw_pairs, draw_variants

WEIGHTS = st.lists(st.floats(0.05, 4), min_size=1, max_size=3)


def origins(n, n_sources, seed=1):
    return np.random.default_rng(seed).integers(n_sources, size=n).astype(np.uint16)


@given(n=st.integers(0, 30), weights=WEIGHTS, seed=st.integers(0, 9))
def test_pairs_are_seen_as_often_as_their_source_weighs(n, weights, seed):
    sources, seen = origins(n, len(weights)), np.zeros(n)
    for epoch in range(12):
        pairs = draw_pairs(sources, weights, seed, epoch)
        assert (np.diff(pairs) >= 0).all()
        times = np.bincount(pairs, minlength=n)
        wanted = np.array(weights)[sources]
        assert ((times >= np.floor(wanted)) & (times <= np.floor(wanted) + 1)).all()
        seen += times
        assert (abs(seen - wanted * (epoch + 1)) < 1).all(), "evenly, at every time"
        assert draw_pairs(sources, weights, seed, epoch).tolist() == pairs.tolist()


def test_which_pairs_come_is_up_to_chance():
    sources = origins(1000, 1)
    first, other = (set(draw_pairs(sources, [0.5], seed, 0)) for seed in (1, 2))
    assert first != other
    assert 400 < len(first) < 600
    assert first | set(draw_pairs(sources, [0.5], 1, 1)) == set(range(1000))


def test_equal_weights_change_nothing():
    for epoch in (0, 5):
        assert draw_pairs(origins(50, 3), [1.0, 1.0, 1.0], 3, epoch).tolist() == list(range(50))


@pytest.mark.parametrize("weights", [[1.0], [2.0], [0.4, 1.7]])
@pytest.mark.parametrize("n_variants", [1, 3, 8])
def test_no_segmentation_recurs_before_all_were_seen(weights, n_variants):
    sources, seed = origins(40, len(weights)), 5
    seen = [[] for _ in range(40)]
    for epoch in range(n_variants**2 * 3):
        pairs = draw_pairs(sources, weights, seed, epoch)
        drawn = draw_variants(pairs, sources, weights, n_variants, seed, epoch)
        assert drawn.shape == (len(pairs), 2)
        for pair, cuts in zip(pairs.tolist(), drawn.tolist(), strict=True):
            seen[pair].append(tuple(cuts))
    for cuts in seen:
        for begin in range(0, len(cuts) - n_variants + 1, n_variants):
            for side in (0, 1):
                some = [cut[side] for cut in cuts[begin : begin + n_variants]]
                assert sorted(some) == list(range(1, n_variants + 1))
        every = cuts[: n_variants**2]
        assert len(set(every)) == len(every), "source and target meet in all combinations"


def test_pairs_begin_anywhere_and_sides_apart():
    drawn = draw_variants(np.arange(800), origins(800, 1), [1.0], 8, 3, 0)
    counts = np.bincount(drawn[:, 0] * 9 + drawn[:, 1])
    assert np.count_nonzero(counts) == 64
    assert draw_variants(np.arange(800), origins(800, 1), [1.0], 8, 4, 0).tolist() != drawn.tolist()


def test_without_variants_all_is_plain():
    assert draw_variants(np.array([3, 3, 4]), origins(9, 1), [1.0], 0, 3, 0).tolist() == [[0, 0]] * 3
    assert draw_variants(np.array([], dtype=np.int64), origins(9, 1), [1.0], 4, 3, 0).shape == (0, 2)
