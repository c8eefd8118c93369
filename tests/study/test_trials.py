"""The classifier: a set without positions, no notice of padding, and weights that its trace shows.

Learning a task in several ways: a planted rule is found where it can be, and nowhere else.
"""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.config import ModelSettings, PartSettings
from regard.position import POSITION
from regard.study.task import Examples, coordinates, oracle_accuracy, parse_encoding
from regard.study.task_report import summarise_trials
from regard.study.trials import (
    accuracy,
    build_classifier,
    build_encoder,
    class_weights,
    classifier_attention,
    make_model,
    make_position,
    mean_of_real,
    read,
    run_trial,
    run_trials,
)
from tests.parts import make_places, noise
from tests.study.planted import SETTINGS, planted

B, T, P, D, H, CLASSES = 2, 7, 3, 12, 2, 5
ORDER = torch.tensor([3, 0, 6, 1, 5, 2, 4])


def made(scheme="none", pool="class", reads="patches", **more):
    torch.manual_seed(0)
    settings = ModelSettings(
        n_encoder_layers=2, d_model=D, n_heads=H, d_ff=11, dropout=0.0, position=PartSettings(scheme), **more
    )
    position = make_position(settings, T, 3)
    model = build_classifier(settings, position, P if reads == "patches" else 17, CLASSES, reads, pool)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model.double().eval(), make_places(position, 0, T)


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("norm_place", ["before", "after"])
def test_without_positions_the_order_of_the_tokens_does_not_matter(pool, norm_place):
    model, places = made("none", pool, norm_place=norm_place)
    patches = noise(B, T, P, seed=1)
    assert_close(model(patches[:, ORDER], places), model(patches, places))


@pytest.mark.parametrize("scheme", [name for name in POSITION if name != "none"])
def test_with_positions_it_does_unless_they_move_along(scheme):
    model, places = made(scheme)
    patches = noise(B, T, P, seed=1)
    here = model(patches, places)
    assert (model(patches[:, ORDER], places) - here).abs().amax() > 1e-6
    # Rotary schemes and biases act between tokens, so the class token's own place must not move: it is at 0 anyway.
    assert_close(model(patches[:, ORDER], places[:, ORDER]), here)


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("scheme", ["none", "sinusoidal", "t5"])
def test_padding_changes_nothing(pool, scheme):
    model, places = made(scheme, pool)
    patches = noise(B, T, P, seed=1)
    lengths = torch.tensor([4, 7])
    short = model(patches[:1, :4], places[:, :4])
    whole = model(patches, places, lengths)
    assert_close(whole[:1], short)
    assert_close(whole[1:], model(patches[1:], places))
    other = patches.clone()
    other[0, 4:] = 99.0
    assert_close(model(other, places, lengths), whole)


def test_words_are_read_too_and_padding_is_no_word():
    model, places = made("sinusoidal", reads="ids")
    ids = torch.tensor([[1, 16, 2, 3, 0, 0, 0]])
    assert_close(model(ids, places, torch.tensor([4])), model(ids[:, :4], places[:, :4]))
    assert model(ids, places, torch.tensor([4])).shape == (1, CLASSES)


def test_the_mean_is_over_real_tokens():
    x = torch.tensor([[[1.0], [3.0], [50.0]], [[2.0], [4.0], [9.0]]])
    real = torch.tensor([[True, True, False], [False, False, False]])
    assert mean_of_real(x, real).tolist() == [[2.0], [0.0]]
    assert mean_of_real(x, None).tolist() == [[18.0], [5.0]]


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("scheme", ["grid_2d", "rotary", "alibi"])
def test_the_trace_shows_the_weights_that_the_layers_used(scheme, pool):
    model, places = made(scheme, pool)
    patches = noise(1, T, P, seed=1)
    before = model(patches, places)
    looks = classifier_attention(model, patches, places)
    own = int(pool == "class")
    assert [look.layer for look in looks] == [0, 1]
    for look in looks:
        assert look.sizes == (H, T + own, T + own)
        assert_close(look.weights().sum(dim=-1), torch.ones(H, T + own, dtype=torch.float64))
        assert look.error() < 1e-12  # weights @ v is what the layer put out
    shown = class_weights(model, patches, places)
    expected = [look.weights()[:, 0, 1:] if own else look.weights().mean(dim=1) for look in looks]
    assert_close(shown, torch.stack(expected))
    assert not any(module._forward_hooks for module in model.modules())
    assert_close(model(patches, places), before, rtol=0, atol=0)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="unknown pool 'middle'"):
        made(pool="middle")
    with pytest.raises(ValueError, match="n_classes must be 2 or more, got 1"):
        build_classifier(ModelSettings(d_model=D, n_heads=H), POSITION["none"](), P, 1, "patches", "mean")
    with pytest.raises(ValueError, match="unknown position 'grid_4d': did you mean 'grid_3d'"):
        made("grid_4d")
    with pytest.raises(ValueError, match="got 0 and 2048"):
        build_encoder(ModelSettings(n_encoder_layers=0), POSITION["none"]())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("scheme", ["none", "grid_2d", "rotary", "t5"])
def test_a_gpu_says_the_same_and_learns_the_same(scheme):
    model, places = made(scheme)
    patches, lengths = noise(B, T, P, seed=1).float(), torch.tensor([4, 7])
    told = []
    for device in ("cpu", "cuda"):
        here = model.float().to(device)
        logits = here(patches.to(device), places.to(device), lengths.to(device))
        gradients = torch.autograd.grad(logits.square().sum(), [p for p in here.parameters() if p.requires_grad])
        told.append([logits.detach().cpu(), *(each.cpu() for each in gradients)])
    for ours, theirs in zip(*told, strict=True):
        assert_close(theirs, ours, atol=1e-3, rtol=1e-3)


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
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)  # as near as one thread and several come


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
    assert oracle_accuracy(examples, coordinates(parse_encoding("none", axes), axes, places)) == pytest.approx(2 / 3)
    assert oracle_accuracy(examples, coordinates(parse_encoding("sinusoidal", axes), axes, places)) == 1.0
