"""Reading again with two models: who is asked, what the scores are, and which models fit together."""

import numpy as np
import pytest

from regard.clean.classifier import NoiseClassifier
from regard.clean.cross_entropy import DualModels, SecondReader, dual, second_features
from regard.clean.judging import Judgement
from regard.clean.noise import KINDS
from regard.clean.reading import ParsedLine
from regard.pipeline import load_translator

N = len(KINDS) + 1


class Costs(DualModels):
    """Stands for two models that find short texts likely."""

    def __init__(self):
        object.__setattr__(self, "asked", [])

    def costs(self, pairs):
        self.asked.extend(pairs)
        return np.array([[len(src), len(tgt)] for src, tgt in pairs], float).reshape(-1, 2)


def judgement(noise):
    lines = [ParsedLine("a" * (n + 1), "b", "", f"x, line {n}") for n in range(len(noise))]
    posteriors = np.zeros((len(noise), N))
    posteriors[:, 0], posteriors[:, 1] = 1 - np.array(noise), noise
    zeros = np.zeros((len(noise), 2))
    return Judgement(
        lines, np.zeros(len(noise), np.uint8), posteriors, zeros, zeros.T.astype(np.uint64), zeros * np.nan
    )


def certain(kind):
    """Return a classifier that always answers the same."""
    n_features = second_features(np.ones((1, N)), np.ones((1, 2))).shape[1]
    bias = np.where(np.arange(N) == kind, 50.0, 0.0)
    zero, one = np.zeros(n_features), np.ones(n_features)
    return NoiseClassifier(zero, one, np.zeros((n_features, 3)), np.zeros(3), np.zeros((3, N)), bias, np.ones(N))


def test_only_what_is_in_doubt_is_read_and_judged_again():
    models = Costs()
    found = SecondReader(models, certain(1)).read(judgement([0.001, 0.4, 0.999]), everything=False)
    assert models.asked == [("aa", "b")]
    np.testing.assert_allclose(found.noise, [0.001, 1.0, 0.999])
    np.testing.assert_array_equal(np.isnan(found.costs[:, 0]), [True, False, True])


def test_for_scores_all_are_read_and_the_certain_ones_stay():
    models = Costs()
    found = SecondReader(models, certain(0)).read(judgement([0.001, 0.4, 0.999]), everything=True)
    assert len(models.asked) == 3 and not np.isnan(found.costs).any()
    np.testing.assert_allclose(found.noise, [0.001, 0.0, 0.999], atol=1e-12)


def test_dual_cross_entropy_by_hand():
    np.testing.assert_allclose(dual(np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 1.0]])), [1.0, 4.0, 4.0])


def test_bundled_models_prefer_translations():
    models = DualModels(load_translator("zh-en"), load_translator("en-zh"))
    pairs = [("我喜欢音乐。", "I like music."), ("我喜欢音乐。", "The train is late."), ("我" * 500, "I")]
    good, wrong, long = dual(models.costs(pairs))
    assert good < 2 < wrong and np.isnan(long)
    alone = dual(models.costs(pairs[1:2]))
    np.testing.assert_allclose(alone, wrong, rtol=1e-4)
    with pytest.raises(ValueError, match="from en to zh, got one from zh to en"):
        DualModels(models.forward, models.forward)
