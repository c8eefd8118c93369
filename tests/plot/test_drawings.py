"""What the figures of the studies show, compared with the numbers behind them."""

import numpy as np
import torch

from regard.study.positions import bits, draw_positions, halves, run_positions
from regard.study.regression import draw_regression, run_regression
from regard.study.scores import draw_scores, run_scores


def test_the_regression_figure_draws_the_three_fits_and_both_weight_matrices():
    result = run_regression(steps=5)
    fits, loss, before, after = draw_regression(result).axes
    curves = [line.get_ydata() for line in fits.get_lines()]
    for curve in (result.average, result.fixed, result.learned):
        assert any(np.array_equal(curve.prediction.numpy(), drawn) for drawn in curves)
    assert np.array_equal(loss.get_lines()[0].get_ydata(), result.losses)
    assert np.array_equal(before.images[0].get_array(), result.weights_before.numpy())
    assert np.array_equal(after.images[0].get_array(), result.weights_after.numpy())


def test_the_scores_figure_draws_each_weight_matrix_with_its_words():
    study = run_scores(["Introduce", "Xi'an"], ["介绍", "一下", "西安"], width=5)
    axes = draw_scores(study).axes[: len(study.scores)]
    for one, report in zip(axes, study.scores, strict=True):
        assert np.array_equal(one.images[0].get_array(), report.weights.numpy())
        assert [label.get_text() for label in one.get_xticklabels()] == ["介绍", "一下", "西安"]
        assert [text.get_text() for text in one.texts] == [f"{w:.2f}" for w in report.weights.flatten().tolist()]


def test_the_positions_figure_draws_codes_and_profile():
    reports = list(run_positions(["sinusoidal", "alibi", "none"], length=16, width=6, far=20))
    panels = [axes for axes in draw_positions(reports).axes if axes.get_title(loc="left")]
    assert len(panels) == 9
    assert np.array_equal(panels[0].images[0].get_array(), reports[0].codes.numpy())
    assert np.array_equal(panels[2].get_lines()[0].get_ydata(), reports[0].profile.numpy())
    assert len(draw_positions(reports[:1]).axes) >= 6


def test_halves_put_sines_left_and_cosines_right():
    codes = torch.tensor([[1.0, 10.0, 2.0, 20.0, 3.0]])
    assert halves(codes).tolist() == [[1.0, 2.0, 3.0, 10.0, 20.0]]


def test_bits_count():
    assert (bits(13) * 2 ** torch.arange(4)).sum(dim=1).tolist() == list(range(13))
