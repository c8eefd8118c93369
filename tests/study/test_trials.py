"""Learning a task in several ways: a planted rule is found where it can be, and nowhere else.

Tables and figures are compared with the numbers behind them.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.study import dialogue, images, video
from regard.study.images import assemble
from regard.study.task import (
    accuracy,
    make_model,
    parse_encoding,
    read,
)
from regard.study.trials import (
    STRONGEST,
    overlay,
    run_trial,
    run_trials,
    summarise_trials,
)
from regard.study.video import CELLS
from regard.terminal import to_json
from tests.study.planted import SETTINGS, planted

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found():
    task = planted()
    told = [parse_encoding(way, task.axes) for way in ("grid_2d", "grid_2d:row,nothing", "none")]
    trials = [run_trial(task, each, SETTINGS, seed, CPU) for each in told for seed in (0, 1)]
    return task, trials, summarise_trials(task, SETTINGS, trials, [3, 5])


def test_the_rule_is_found_where_the_column_is_told_and_nowhere_else(found):
    _, _, study = found
    whole, row, none = study.rows
    assert whole.test.mean == 1.0 and whole.test.n == 2
    assert row.test.mean <= row.oracle_accuracy < 0.7 and none.test.mean <= none.oracle_accuracy < 0.7
    assert whole.oracle_accuracy == 1.0
    assert study.chance == 0.5 and study.row("none") is none and study.row("alibi") is None


def test_trials_in_processes_of_their_own_find_the_same(found):
    task, trials, _ = found
    wanted = {(trial.encoding, trial.seed): (trial, model) for trial, model in trials}
    told = list({trial.encoding: None for trial, _ in trials})[:1]
    beside = list(run_trials(task, told, SETTINGS, [0, 1], CPU, 2))
    assert sorted(trial.seed for trial, _ in beside) == [0, 1]
    for trial, model in beside:
        alone, its_model = wanted[trial.encoding, trial.seed]
        assert (trial.valid, trial.test, trial.parameters) == (alone.valid, alone.test, alone.parameters)
        for a, b in zip(model.parameters(), its_model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_trial_that_fails_is_named(found):
    task, _, _ = found
    wrong = replace(SETTINGS, learn=replace(SETTINGS.learn, lr=-1.0))
    with pytest.raises(RuntimeError, match="training none with seed 7 ended with exit code 1"):
        list(run_trials(task, [parse_encoding("none", task.axes)], wrong, [7], CPU, 1))


def test_shuffling_tells_sets_from_grids(found):
    _, _, study = found
    whole, _, none = study.rows
    assert all(trial.shuffled == trial.test for trial in none.trials)
    assert whole.shuffled.mean < 0.8


def test_the_numbers_are_those_of_the_models(found):
    task, trials, study = found
    trial, model = trials[0]
    assert accuracy(model, task, trial.encoding, task.valid) == trial.valid
    logits = read(model, task, trial.encoding, task.test).argmax(dim=-1)
    assert float((logits == task.test.labels).float().mean()) == pytest.approx(trial.test)
    assert trial.parameters == sum(p.numel() for p in model.parameters()) == study.rows[0].parameters
    seen = study.examples[1]
    assert seen.number == 5 and seen.label == task.classes[int(task.test.labels[5])] == seen.prediction
    assert torch.equal(seen.tokens, task.test.tokens[5])
    assert seen.weights.shape == (1, 2, 8)


def test_the_seed_decides_everything(found):
    task, trials, _ = found
    again, model = run_trial(task, trials[0][0].encoding, SETTINGS, 0, CPU)
    assert [lesson.loss for lesson in again.lessons] == [lesson.loss for lesson in trials[0][0].lessons]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trials[0][1].parameters(), strict=True))
    assert [lesson.loss for lesson in again.lessons] != [lesson.loss for lesson in trials[1][0].lessons]


def test_a_table_is_as_long_as_the_places_need():
    task = planted()
    model = make_model(task, parse_encoding("learned", task.axes), SETTINGS, 0)
    assert model.embedding.position.table.shape == (8, 16)


def test_examples_are_varied_only_while_they_are_learned_from():
    task, calls = planted(), []

    def vary(tokens, draws):
        calls.append(len(tokens))
        return tokens * 0

    blind = type(task)(**{**task.__dict__, "vary": vary})
    trial, _ = run_trial(blind, parse_encoding("grid_2d", task.axes), SETTINGS, 0, CPU)
    assert sum(calls) == 10 * 96
    assert trial.lessons[-1].loss > 0.6  # nothing can be learned from blank grids


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
