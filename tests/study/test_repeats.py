"""Means over repeats, and the test whether two differ."""

import random

import pytest
import torch

from regard.study.repeats import MeanStd, differs, mean_std


def test_a_summary_is_mean_and_deviation():
    found = mean_std([1.0, 3.0])
    assert (found.mean, found.n) == (2.0, 2) and found.std == pytest.approx(2**0.5)
    assert mean_std(torch.tensor([4.0])).std == 0.0
    with pytest.raises(ValueError, match="needs one measurement or more, got 0"):
        mean_std([])


def test_a_difference_within_the_deviation_is_not_significant():
    base = MeanStd(10.0, 1.0, 4)
    assert differs(MeanStd(11.74, 1.0, 4), base) is True  # 2.447 · √(1/4 + 1/4) = 1.730, 6 degrees of freedom
    assert differs(MeanStd(11.72, 1.0, 4), base) is False
    assert differs(MeanStd(8.26, 1.0, 4), base) is True
    assert differs(MeanStd(20.0, 0.0, 1), base) is None
    assert differs(MeanStd(10.0, 0.0, 3), MeanStd(10.0, 0.0, 3)) is False


def test_chance_is_judged_as_scipy_does():
    scipy = pytest.importorskip("scipy.stats")
    for seed in range(40):
        chance = random.Random(seed)
        samples = [[chance.gauss(mean, 1 + mean) for _ in range(3)] for mean in (0.0, chance.random() * 4)]
        found = scipy.ttest_ind(*samples, equal_var=False)
        strict = found.pvalue < 0.05 and int(found.df) == found.df
        judged = differs(mean_std(samples[0]), mean_std(samples[1]))
        assert judged or not strict
        assert not judged or found.pvalue < 0.05
