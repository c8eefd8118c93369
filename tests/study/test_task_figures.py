"""What figures and tables about tasks show, compared with the numbers behind them."""

import numpy as np
import pytest
import torch

from regard.study import dialogue, images, video
from regard.study.images import assemble
from regard.study.task import parse_encoding
from regard.study.task_report import STRONGEST, overlay, summarise_trials
from regard.study.trials import run_trial
from regard.study.video import CELLS
from regard.terminal import to_json
from tests.study.planted import SETTINGS, planted

ONE_EPOCH = type(SETTINGS)(SETTINGS.model, type(SETTINGS.learn)(epochs=1, batch=8))


def studied(task, names, shown):
    encodings = [parse_encoding(name, task.axes) for name in names]
    cpu = torch.device("cpu")
    trials = [run_trial(task, encoding, ONE_EPOCH, seed, cpu) for encoding in encodings for seed in (0, 1)]
    return summarise_trials(task, ONE_EPOCH, trials, shown)


@pytest.fixture(scope="module")
def sides():
    return studied(planted(), ["grid_2d", "learned", "none"], [0, 1, 2])


@pytest.fixture(scope="module")
def videos():
    return studied(video.make_task(4, 8, 1), ["grid_3d", "grid_2d", "sinusoidal:frame", "learned", "none"], [0, 5])


@pytest.fixture(scope="module")
def dialogues():
    return studied(dialogue.make_task(8, 1), ["turns", "turns:index,turn,nothing", "none"], [0, 7])


def test_the_bars_are_the_means_and_the_dots_the_seeds(sides):
    axes = images.figure(sides).axes[0]
    assert [bar.get_width() for bar in axes.patches] == [100 * row.test.mean for row in sides.rows]
    dots = [line.get_xdata() for line in axes.get_lines() if line.get_marker() == "o"]
    assert [list(each) for each in dots] == [[100 * trial.test for trial in row.trials] for row in sides.rows]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["grid_2d\n(row, column)", "learned\n(index)", "none"]


def test_the_images_figure_lays_each_head_over_its_image(sides):
    axes = images.figure(sides).axes[1:]
    shown = sides.examples[1]
    picture = assemble(shown.tokens[None], (2, 4))[0].numpy()
    row = axes[3:6]  # the second image: itself, then two heads
    assert [len(one.images) for one in row] == [1, 2, 2]
    assert all(np.array_equal(one.images[0].get_array(), picture) for one in row)
    for one, weights in zip(row[1:], shown.weights[0], strict=True):
        drawn = one.images[1].get_array()[..., 3]
        np.testing.assert_allclose(drawn, STRONGEST * (weights / weights.max()).view(2, 4).numpy(), rtol=1e-6)


def test_the_video_figure_has_every_frame_for_every_head(videos):
    axes = video.figure(videos).axes[1:]
    frames = assemble(videos.examples[0].tokens[None], (4, CELLS, CELLS))[0]
    assert len(axes) == 2 * (1 + 2) * 4
    for one, frame in zip(axes[:4], frames, strict=True):
        assert np.array_equal(one.images[0].get_array(), frame.numpy())
    weights = videos.examples[0].weights[0, 1].view(4, CELLS, CELLS)
    drawn = axes[8 + 2].images[1].get_array()[..., 3]
    np.testing.assert_allclose(drawn, STRONGEST * (weights[2] / weights.max()).numpy(), rtol=1e-6)


def test_the_dialogue_figure_writes_every_word_in_its_turn(dialogues):
    axes = dialogue.figure(dialogues).axes[1]
    shown = dialogues.examples[0]
    words = [text for text in axes.texts if text.get_bbox_patch() is not None]
    assert len(words) == len(shown.tokens)
    assert [text.get_position()[1] for text in words] == shown.positions[:, 1].tolist()
    alpha = [text.get_bbox_patch().get_facecolor()[3] for text in words]
    weights = shown.weights[-1, 0]
    np.testing.assert_allclose(alpha, (STRONGEST * weights / weights.max()).numpy(), rtol=1e-5)


def test_an_overlay_is_transparent_at_0_and_most_opaque_at_the_largest():
    drawn = overlay(torch.tensor([[0.0, 0.2], [0.1, 0.4]]), 0.4)
    np.testing.assert_allclose(drawn[..., 3], [[0.0, STRONGEST / 2], [STRONGEST / 4, STRONGEST]], rtol=1e-6)


def test_the_table_has_a_row_for_each_encoding(videos):
    table = video.tables(videos)["accuracy"]
    columns = {column.header: list(column.cells) for column in table.columns}
    assert columns["positions"] == ["grid_3d", "grid_2d", "sinusoidal", "learned", "none"]
    assert columns["coordinates"] == ["frame, row, column", "row, column", "frame", "index", "nothing"]
    assert columns["upper\nbound"] == ["100.0", "50.0", "25.0", "100.0", "25.0"]
    assert columns["test"][-1] == "25.0 ± 0.0"


@pytest.mark.parametrize("name", ["sides", "videos", "dialogues"])
def test_json_has_the_keys_that_readers_know_and_the_control(name, request):
    found = to_json(request.getfixturevalue(name))
    assert {"task", "rows", "seen", "signature"} <= found.keys()
    row = found["rows"][-1]
    assert {"bound", "test", "shuffled", "trials"} <= row.keys() and row["test"].keys() == {"mean", "spread", "n"}
    assert row["trials"][0]["told"] == {"name": "none", "scheme": "none", "coordinates": []}
    assert {"places", "right", "said"} <= found["seen"][0].keys()
    assert row["test"] == row["shuffled"]  # without positions a model reads a set
    assert found["signature"]["seeds"] == [0, 1]
