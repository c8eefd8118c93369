"""The lessons agree with the studies and with the layer itself."""

import numpy as np
import pytest
import torch

import regard
from regard.position import POSITION
from regard.position.absolute import sinusoids
from regard.serve import lessons
from regard.serve.lessons import LAWS, layer_lesson, position_lesson, regression_lesson
from regard.study.positions import FAR, examine
from regard.study.regression import run_regression
from tests.serve.server import client_of


@pytest.mark.parametrize("scheme", POSITION)
def test_every_scheme_can_be_shown(scheme):
    lesson, report = position_lesson(scheme, 16, 8, 100.0, 2, 3), examine(scheme, 16, 8, 100.0, 10)
    assert {law.name: law.holds for law in lesson.laws} == {name: getattr(report, name).holds for name in LAWS}
    assert np.array(lesson.codes) == pytest.approx(report.codes.numpy(), rel=1e-6)
    assert lesson.profile == pytest.approx(report.profile.tolist(), rel=1e-6)
    if lesson.shift is not None:
        assert lesson.shift.moved == pytest.approx(np.array(lesson.shift.matrix) @ lesson.shift.before, abs=1e-5)


def test_codes_are_compared_as_far_as_the_command_does():
    lesson = position_lesson("sinusoidal", 16, 8, 10000.0)
    assert lesson.distinct_up_to == lesson.compared_up_to == FAR
    assert position_lesson("learned", 16, 8).distinct_up_to is None


def test_wide_codes_are_compared_as_far_as_the_work_allows(monkeypatch):
    monkeypatch.setattr(lessons, "MAX_COMPARED", 3_000)
    lesson = position_lesson("rotary", 16, 30, 10000.0)
    assert lesson.distinct_up_to == lesson.compared_up_to == 100


def test_codes_are_compared_once_for_all_who_ask(models, monkeypatch):
    compared = []
    monkeypatch.setattr(lessons, "distinct_up_to", lambda scheme, far, width: compared.append(width) or far)
    with client_of(models) as client:
        for query in ("width=8", "width=8&length=20", "width=8&steps=3", "width=6"):
            assert client.get(f"/positions?{query}").json()["distinct_up_to"] == FAR
    assert compared == [8, 6]


def test_the_shift_matrix_moves_a_sinusoidal_code():
    lesson = position_lesson("sinusoidal", 16, 8, 100.0, 5, 7)
    assert lesson.shift.exact and lesson.shift.place == 7
    assert lesson.shift.before == pytest.approx(sinusoids(torch.tensor(7), 8, 100.0).tolist(), abs=1e-6)
    assert lesson.shift.moved == pytest.approx(sinusoids(torch.tensor(12), 8, 100.0).tolist(), abs=1e-6)
    assert lesson.shift.after == pytest.approx(lesson.shift.moved, abs=1e-6)


def test_a_place_without_one_so_many_steps_on_is_the_last_that_has():
    assert position_lesson("sinusoidal", 16, 8, 100.0, 5, 15).shift.place == 10
    assert position_lesson("sinusoidal", 16, 8, 100.0, 16).shift is None
    assert position_lesson("none", 16, 8).shift is None


def test_regression_is_the_study_with_a_width_of_ones_own():
    lesson, study = regression_lesson(3, 20, 10, 0.5, 5, 2.5), run_regression(20, 10, 0.5, 5, 3)
    assert lesson.w == study.w and lesson.learned.prediction == pytest.approx(
        study.learned.prediction.tolist(), rel=1e-6
    )
    x, y = np.array(lesson.x), np.array(lesson.y)
    scores = -((np.array(lesson.x_test)[:, None] - x) ** 2) * 2.5**2 / 2
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert np.array(lesson.weights_chosen) == pytest.approx(weights, abs=1e-5)
    assert lesson.chosen.prediction == pytest.approx(weights @ y, abs=1e-5)


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 1)])
def test_a_walk_arrives_where_the_layer_does(translator, layer, head):
    lesson = layer_lesson(translator, "tiny", "bad cab", layer, head, 5)
    stages = {stage.name: np.array(stage.values) for stage in lesson.stages}
    trace = regard.trace(translator, "bad cab")
    assert lesson.error < 1e-5 and lesson.pieces == list(trace.source)
    assert stages["weights"] == pytest.approx(trace.attention_map("encoder", layer).weights(head).numpy(), abs=1e-5)
    assert stages["scores"] == pytest.approx(trace.attention_map("encoder", layer).scores(head).numpy(), abs=1e-4)
    assert stages["attention_sum"] == pytest.approx(stages["input"] + stages["projected"], abs=1e-5)
    assert lesson.stages[2].norms == pytest.approx(trace.residual_norms[2 * layer].before.tolist(), rel=1e-4)
    assert lesson.stages[-1].norms == pytest.approx(trace.residual_norms[2 * layer + 1].after.tolist(), rel=1e-4)
    assert lesson.stages[0].columns == [0, 1, 2, 3, 4] and lesson.stages[0].width == lesson.d_model == 22
    if layer == 0:
        assert stages["input"] == pytest.approx(stages["token"] + stages["position"], abs=1e-5)


def test_of_the_inner_layer_each_tokens_largest_are_shown(translator):
    some, every = (
        next(stage for stage in layer_lesson(translator, "tiny", "bad cab", features=n).stages if stage.name == "inner")
        for n in (5, 10_000)
    )
    assert every.columns == list(range(every.width)) and len(some.columns) == 5 < every.width
    assert set(np.array(every.values).argmax(1)[:5]) <= set(
        some.columns
    )  # the largest of each token, before the second
    assert some.columns == sorted(some.columns)
    assert np.array(some.values) == pytest.approx(np.array(every.values)[:, some.columns])


def test_a_walk_needs_words(translator):
    with pytest.raises(ValueError, match="'  '"):
        layer_lesson(translator, "tiny", "  ")
