"""What figures, tables and pages about tasks show, compared with the numbers behind them."""

import numpy as np
import pytest
import torch

from regard.study.clips_page import clips_page
from regard.study.dialogue import draw_talks, talks_task
from regard.study.digits_page import digits_page
from regard.study.images import draw_digits, joined
from regard.study.page import page_text
from regard.study.talks_page import talks_page
from regard.study.task import read_told
from regard.study.task_report import STRONGEST, conclude, task_table, veil
from regard.study.trials import run_trials
from regard.study.video import CELLS, clips_task, draw_clips
from tests.study.planted import SETTINGS, planted

ONE_EPOCH = type(SETTINGS)(SETTINGS.model, type(SETTINGS.learn)(epochs=1, batch=8))


def studied(task, ways, show):
    told = [read_told(way, task.axes) for way in ways]
    trials = list(run_trials(task, told, ONE_EPOCH, [0, 1], torch.device("cpu")))
    return conclude(task, ONE_EPOCH, trials, show)


@pytest.fixture(scope="module")
def sides():
    return studied(planted(), ["grid_2d", "learned", "none"], [0, 1, 2])


@pytest.fixture(scope="module")
def clips():
    return studied(clips_task(4, 8, 1), ["grid_3d", "grid_2d", "sinusoidal:frame", "learned", "none"], [0, 5])


@pytest.fixture(scope="module")
def talks():
    return studied(talks_task(8, 1), ["turns", "turns:index,turn,nothing", "none"], [0, 7])


def test_the_bars_are_the_means_and_the_dots_the_seeds(sides):
    axes = draw_digits(sides).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [100 * row.test.mean for row in sides.rows]
    dots = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"]
    assert [list(each) for each in dots] == [[100 * trial.test for trial in row.trials] for row in sides.rows]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["grid_2d\n(row, column)", "learned\n(index)", "none"]


def test_the_digits_figure_lays_each_head_over_its_image(sides):
    axes = draw_digits(sides).axes[1:]
    seen = sides.seen[1]
    picture = joined(seen.tokens[None], (2, 4))[0].numpy()
    row = axes[3:6]  # the second image: itself, then two heads
    assert [len(one.images) for one in row] == [1, 2, 2]
    assert all(np.array_equal(one.images[0].get_array(), picture) for one in row)
    for one, weights in zip(row[1:], seen.weights[0], strict=True):
        drawn = one.images[1].get_array()[..., 3]
        np.testing.assert_allclose(drawn, STRONGEST * (weights / weights.max()).view(2, 4).numpy(), rtol=1e-6)


def test_the_clips_figure_has_every_frame_for_every_head(clips):
    axes = draw_clips(clips).axes[1:]
    frames = joined(clips.seen[0].tokens[None], (4, CELLS, CELLS))[0]
    assert len(axes) == 2 * (1 + 2) * 4
    for one, frame in zip(axes[:4], frames, strict=True):
        assert np.array_equal(one.images[0].get_array(), frame.numpy())
    weights = clips.seen[0].weights[0, 1].view(4, CELLS, CELLS)
    drawn = axes[8 + 2].images[1].get_array()[..., 3]
    np.testing.assert_allclose(drawn, STRONGEST * (weights[2] / weights.max()).numpy(), rtol=1e-6)


def test_the_talks_figure_writes_every_word_in_its_turn(talks):
    axes = draw_talks(talks).axes[1]
    seen = talks.seen[0]
    words = [text for text in axes.texts if text.get_bbox_patch() is not None]
    assert len(words) == len(seen.tokens)
    assert [text.get_position()[1] for text in words] == seen.places[:, 1].tolist()
    alpha = [text.get_bbox_patch().get_facecolor()[3] for text in words]
    weights = seen.weights[-1, 0]
    np.testing.assert_allclose(alpha, (STRONGEST * weights / weights.max()).numpy(), rtol=1e-5)


def test_a_veil_is_clear_at_0_and_thick_at_the_largest():
    drawn = veil(torch.tensor([[0.0, 0.2], [0.1, 0.4]]), 0.4)
    np.testing.assert_allclose(drawn[..., 3], [[0.0, STRONGEST / 2], [STRONGEST / 4, STRONGEST]], rtol=1e-6)


def test_the_table_has_a_row_for_each_way(clips):
    table = task_table(clips)
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["positions"] == ["grid_3d", "grid_2d", "sinusoidal", "learned", "none"]
    assert columns["told"] == ["frame, row, column", "row, column", "frame", "index", "nothing"]
    assert columns["at most"] == ["100.0", "50.0", "25.0", "100.0", "25.0"]
    assert columns["test"][-1] == "25.0 ± 0.0"


@pytest.mark.parametrize("name", ["sides", "clips", "talks"])
def test_a_page_has_the_numbers_of_the_run(name, request):
    study = request.getfixturevalue(name)
    make = {"sides": digits_page, "clips": clips_page, "talks": talks_page}[name]
    text = page_text(make(study, "regard study it"), "images/it.png")
    assert "\nregard study it\n" in text and "(images/it.png)" in text
    for row in study.rows:
        assert f"{100 * row.test.mean:.1f} ± {100 * row.test.spread:.1f}" in text
    assert "exactly the same" in text
    assert f"seeds {study.signature['seeds']}" in text
