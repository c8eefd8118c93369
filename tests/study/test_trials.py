"""Learning a task in several ways: a planted rule is found where it can be, and nowhere else."""

from dataclasses import replace

import pytest
import torch

from regard.study.bound import best_possible
from regard.study.task import Examples
from regard.study.task_study import conclude
from regard.study.told import read_told, tell
from regard.study.trial_jobs import run_beside
from regard.study.trials import accuracy, make_model, read, run_trial, run_trials

from .planted import SETTINGS, planted

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def found():
    task = planted()
    told = [read_told(way, task.axes) for way in ("grid_2d", "grid_2d:row,nothing", "none")]
    trials = list(run_trials(task, told, SETTINGS, [0, 1], CPU))
    return task, trials, conclude(task, SETTINGS, trials, [3, 5])


def test_the_rule_is_found_where_the_column_is_told_and_nowhere_else(found):
    _, _, study = found
    whole, row, none = study.rows
    assert whole.test.mean == 1.0 and whole.test.n == 2
    assert row.test.mean <= row.bound < 0.7 and none.test.mean <= none.bound < 0.7
    assert whole.bound == 1.0
    assert study.chance == 0.5 and study.row("none") is none and study.row("alibi") is None


def test_trials_in_processes_of_their_own_find_the_same(found):
    task, trials, _ = found
    wanted = {(trial.told, trial.seed): (trial, model) for trial, model in trials}
    told = list({trial.told: None for trial, _ in trials})[:1]
    beside = list(run_beside(task, told, SETTINGS, [0, 1], CPU, 2))
    assert sorted(trial.seed for trial, _ in beside) == [0, 1]
    for trial, model in beside:
        alone, its_model = wanted[trial.told, trial.seed]
        assert (trial.valid, trial.test, trial.parameters) == (alone.valid, alone.test, alone.parameters)
        for a, b in zip(model.parameters(), its_model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)  # as near as one thread and several come


def test_a_trial_that_fails_is_named(found):
    task, _, _ = found
    wrong = replace(SETTINGS, learn=replace(SETTINGS.learn, lr=-1.0))
    with pytest.raises(RuntimeError, match="learning none with seed 7 ended with exit code 1"):
        list(run_beside(task, [read_told("none", task.axes)], wrong, [7], CPU, 1))


def test_shuffling_tells_sets_from_grids(found):
    _, _, study = found
    whole, _, none = study.rows
    assert all(trial.shuffled == trial.test for trial in none.trials)
    assert whole.shuffled.mean < 0.8


def test_the_numbers_are_those_of_the_models(found):
    task, trials, study = found
    trial, model = trials[0]
    assert accuracy(model, task, trial.told, task.valid) == trial.valid
    logits = read(model, task, trial.told, task.test).argmax(dim=-1)
    assert float((logits == task.test.labels).float().mean()) == pytest.approx(trial.test)
    assert trial.parameters == sum(p.numel() for p in model.parameters()) == study.rows[0].parameters
    seen = study.seen[1]
    assert seen.number == 5 and seen.right == task.classes[int(task.test.labels[5])] == seen.said
    assert torch.equal(seen.tokens, task.test.tokens[5])
    assert seen.weights.shape == (1, 2, 8)


def test_the_seed_decides_everything(found):
    task, trials, _ = found
    again, model = run_trial(task, trials[0][0].told, SETTINGS, 0, CPU)
    assert [lesson.loss for lesson in again.lessons] == [lesson.loss for lesson in trials[0][0].lessons]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), trials[0][1].parameters(), strict=True))
    assert [lesson.loss for lesson in again.lessons] != [lesson.loss for lesson in trials[1][0].lessons]


def test_a_table_is_as_long_as_the_places_need():
    task = planted()
    model = make_model(task, read_told("learned", task.axes), SETTINGS, 0)
    assert model.embedding.position.table.shape == (8, 16)


def test_examples_are_varied_only_while_they_are_learned_from():
    task, calls = planted(), []

    def vary(tokens, draws):
        calls.append(len(tokens))
        return tokens * 0

    blind = type(task)(**{**task.__dict__, "vary": vary})
    trial, _ = run_trial(blind, read_told("grid_2d", task.axes), SETTINGS, 0, CPU)
    assert sum(calls) == 10 * 96
    assert trial.lessons[-1].loss > 0.6  # nothing can be learned from blank grids


def test_shuffling_keeps_the_tokens_of_each_example_and_leaves_padding_behind():
    tokens = torch.arange(24).view(3, 8)
    examples = Examples(tokens, torch.zeros(1, 8, 1, dtype=torch.long), torch.tensor([8, 5, 1]), torch.zeros(3).long())
    shuffled = examples.shuffled(0).tokens
    assert not torch.equal(shuffled, tokens)
    for before, after, length in zip(tokens, shuffled, (8, 5, 1), strict=True):
        assert sorted(after[:length].tolist()) == before[:length].tolist()
        assert sorted(after[length:].tolist()) == before[length:].tolist()
    assert torch.equal(examples.shuffled(0).tokens, shuffled)
    assert not torch.equal(examples.shuffled(1).tokens, shuffled)


def test_the_bound_counts_the_commonest_class_of_equal_sets():
    # Two examples are the same set in another order, with different classes; the third is by itself.
    tokens = torch.tensor([[1.0, 2.0, 7.0], [2.0, 1.0, 8.0], [2.0, 2.0, 9.0]])[..., None]
    places = torch.tensor([[[0], [1], [2]]])
    examples = Examples(tokens, places, torch.tensor([2, 2, 2]), torch.tensor([0, 1, 1]))
    axes = ("index",)
    assert best_possible(examples, tell(read_told("none", axes), axes, places)) == pytest.approx(2 / 3)
    assert best_possible(examples, tell(read_told("sinusoidal", axes), axes, places)) == 1.0
