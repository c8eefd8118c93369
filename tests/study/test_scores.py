"""What scores do to the same vectors, and the variance experiment."""

import math

import pytest
import torch

from regard.attention import ATTENTION
from regard.study.scores import measure_variance, run_scores


def test_every_score_of_the_table_is_reported_with_weights_that_sum_to_one():
    study = run_scores(["a", "b", "c"], ["d", "e", "f", "g", "h"], width=7)
    assert [report.name for report in study.scores] == list(ATTENTION)
    for report in study.scores:
        assert report.weights.shape == (3, 5)
        torch.testing.assert_close(report.weights.sum(dim=-1), torch.ones(3, dtype=torch.float64))
        assert 0.0 < report.entropy <= 1.0
        assert 1 / 5 <= report.largest <= 1.0


def test_scaling_divides_the_spread_of_the_dot_product_by_the_root_of_the_width():
    study = run_scores(["a", "b", "c"], ["d", "e"], width=49)
    by_name = {report.name: report for report in study.scores}
    assert by_name["scaled_dot"].std == pytest.approx(by_name["dot"].std / 7, rel=1e-12)


@pytest.mark.parametrize("width", [4, 64, 512])
def test_the_variance_of_the_dot_product_is_the_width(width):
    found = measure_variance(width, torch.Generator().manual_seed(1))
    # 8 · 128² products of 8 · 256 independent vectors: the sampling error is a few per cent.
    assert found.dot == pytest.approx(width, rel=0.1)
    assert found.scaled == pytest.approx(1.0, rel=0.1)


def test_without_scaling_the_softmax_saturates_and_passes_less_gradient():
    study = run_scores(["a"], ["b", "c"], seed=2)
    first, last = study.variances[0], study.variances[-1]
    assert last.largest_dot > 0.9 > 5 * last.largest_scaled
    assert last.slope_dot < first.slope_dot / 5
    assert math.isclose(last.slope_scaled, first.slope_scaled, rel_tol=0.05)
