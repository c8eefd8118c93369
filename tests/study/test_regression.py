"""The kernel regression experiment: its data, its laws, its learning."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard.attention import Gaussian
from regard.study.regression import (
    FitSettings,
    attention_weights,
    draw_regression,
    fit_width,
    pool,
    read_formula,
    read_points,
    regression_table,
    run_on_points,
    run_regression,
    truth,
)


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
    first = fit_width(Gaussian().double(), x, y, FitSettings(steps=1))[0]
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


def test_the_textbook_takes_five_steps_of_sgd_on_the_sum_of_errors():
    """By hand: w ← w − 0.5 · d/dw Σ errors, each point predicted from all the others."""
    result = run_regression(n_train=7, fit="textbook")
    w = torch.ones((), dtype=torch.float64, requires_grad=True)
    others = torch.full((7, 7), 0.0, dtype=torch.float64).fill_diagonal_(-math.inf)
    for _ in range(5):
        scores = -((result.x[:, None] - result.x[None]) * w).square() / 2 + others
        error = (scores.softmax(dim=1) @ result.y - result.y).square().sum()
        w = (w - 0.5 * torch.autograd.grad(error, w)[0]).detach().requires_grad_()
    assert len(result.losses) == 5
    assert result.w == pytest.approx(float(w.detach()), rel=1e-9)


def test_a_formula_is_the_function_it_says():
    x = torch.linspace(-2, 3, 7, dtype=torch.float64)
    found = read_formula("-x**2/3 + 2*sin(pi*x) - exp(-abs(x)) + 1e-1", -2.0, 3.0).of(x)
    assert_close(found, -(x**2) / 3 + 2 * torch.sin(math.pi * x) - torch.exp(-x.abs()) + 0.1)
    result = run_regression(noise=0.0, steps=20, curve=read_formula("3*x", -1.0, 1.0))
    assert_close(result.y, 3 * result.x)
    assert float(result.x.min()) >= -1 and float(result.x.max()) < 1 and result.source == "3*x"
    assert (
        run_regression(steps=2, curve=read_formula("2*sin(x) + x**0.8", 0.0, 5.0)).losses
        == run_regression(steps=2).losses
    )


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "x.__class__",
        "(lambda: x)()",
        "[x for x in x]",
        "eval('x')",
        "sin(x, out=x)",
        "x if x else x",
        "y + 1",
        "'a' * 9",
        "True + x",
        "x @ x",
        "x; x",
        "",
        "1" * 400,
        "9e999 * x",
    ],
)
def test_nothing_but_arithmetic_is_evaluated(text):
    with pytest.raises(ValueError, match="a formula m"):
        read_formula(text, 0.0, 1.0)


def test_a_huge_power_is_infinite_at_once_and_refused():
    with pytest.raises(ValueError, match=r"9\*\*9\*\*9\*\*9 must be finite from 0 to 1"):
        run_regression(curve=read_formula("9**9**9**9", 0.0, 1.0))


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf"))])
def test_an_empty_range_is_refused(low, high):
    with pytest.raises(ValueError, match=f"from a lower to a higher number, got {low} and {high}"):
        read_formula("x", low, high)


def test_own_points_are_judged_on_those_left_out(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n3,9\n1,1\n\n2,4\n0,0\n")
    points = read_points(path)
    assert points.tolist() == [[3, 9], [1, 1], [2, 4], [0, 0]]
    result = run_on_points(points, path.name, steps=3)
    assert result.x.tolist() == [0, 1, 2, 3] and result.y.tolist() == [0, 1, 4, 9]
    assert result.average.error == pytest.approx(
        np.mean([(14 / 3) ** 2, (13 / 3 - 1) ** 2, (10 / 3 - 4) ** 2, (5 / 3 - 9) ** 2])
    )
    assert result.y_test is None and "left-out points" in regression_table(result).columns[2].header
    assert len(draw_regression(result).axes) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [("1 2\n3\n", "line 2: a point must be two numbers x and y, got '3'"), ("1 2\n", "3 or more points")],
)
def test_a_file_without_points_is_refused(tmp_path, text, said):
    path = tmp_path / "points.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        run_on_points(read_points(path), path.name)
