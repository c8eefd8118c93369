"""The kernel regression experiment: its data, its laws, its learning."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.attention import Gaussian
from regard.study.regression import attention_weights, fit_width, pool, run_regression, truth


def test_predictions_equal_the_nadaraya_watson_formula_in_numpy():
    result = run_regression(steps=30, seed=3)
    x, y, q = result.x.numpy(), result.y.numpy(), result.x_test.numpy()
    for w, curve in ((1.0, result.fixed), (result.w, result.learned)):
        kernel = np.exp(-(((q[:, None] - x[None]) * w) ** 2) / 2)
        assert_close(curve.prediction, torch.from_numpy(kernel @ y / kernel.sum(axis=1)))
    assert_close(result.average.prediction, torch.full((100,), float(y.mean()), dtype=torch.float64))


def test_each_training_point_is_predicted_from_the_others():
    x = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    y = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    first = fit_width(Gaussian().double(), x, y, steps=1)[0]
    left_out = []
    for i in range(3):
        kernel = [math.exp(-((x[i] - x[j]) ** 2) / 2) for j in range(3) if j != i]
        others = [float(y[j]) for j in range(3) if j != i]
        prediction = sum(a * b for a, b in zip(kernel, others, strict=True)) / sum(kernel)
        left_out.append((prediction - float(y[i])) ** 2)
    assert first == pytest.approx(sum(left_out) / 3, rel=1e-12)


def test_learning_lowers_the_loss_and_beats_the_fixed_kernel_and_the_average():
    result = run_regression(seed=0)
    assert result.losses[-1] < 0.8 * result.losses[0]
    assert result.learned.error < 0.5 * result.fixed.error < result.average.error
    assert result.w > 1.0


def test_weights_are_rows_of_a_distribution_and_sharpen():
    result = run_regression(steps=50)
    for weights in (result.weights_before, result.weights_after):
        assert_close(weights.sum(dim=-1), torch.ones(100, dtype=torch.float64))
    assert result.weights_after.amax() > result.weights_before.amax()


def test_x_is_never_negative_where_the_power_would_be_nan():
    assert truth(torch.tensor([-1.0])).isnan().all()
    result = run_regression(n_train=500, steps=1)
    assert float(result.x.min()) >= 0.0
    assert float(result.x.max()) < 5.0
    assert result.y.isfinite().all()


def test_the_same_seed_gives_the_same_result_and_another_another():
    one, same, other = (run_regression(steps=3, seed=seed) for seed in (5, 5, 6))
    assert_close(one.y, same.y, rtol=0, atol=0)
    assert one.losses == same.losses
    assert not one.y.equal(other.y)


def test_looking_gives_the_weights_that_pooling_uses():
    result = run_regression(steps=3)
    weights = attention_weights(Gaussian().double(), result.x_test, result.x)
    assert_close(weights @ result.y, pool(Gaussian().double(), result.x_test, result.x, result.y).detach())


@pytest.mark.parametrize("noise", [float("nan"), float("inf")])
def test_noise_that_is_no_number_is_refused(noise):
    with pytest.raises(ValueError, match=f"noise must be 0 or more and steps 1 or more, got {noise}"):
        run_regression(noise=noise)
