"""What layers cost: counted operations, measured paths, fitted exponents, and training step by step."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from regard.batch import Batch
from regard.build import build_model
from regard.config import ModelSettings
from regard.study.complexity import SETTINGS, Sweep, check_formulas, layer_calls, measure_sweep, quick, run
from regard.study.complexity_layers import (
    LAYERS,
    WAYS,
    StepwiseLoss,
    TrainingSweep,
    count,
    count_path,
    count_steps,
    layer_rounds,
    make_group,
    measure_depth,
    measure_throughput,
    stepwise_logits,
)
from regard.study.timing import clock, fit_power, one_thread, peak_bytes, take_turns
from regard.train.loss import LossModule
from tests.parts import noise

CPU = torch.device("cpu")
TINY = replace(
    SETTINGS["cpu"],
    by_n=Sweep("n", (4, 8, 16), other=5, batch=2),
    by_d=Sweep("d", (4, 8, 16), other=5, batch=2),
    training=TrainingSweep("tiny", lengths=(3, 5), slots=15),
    rounds=1,
    depths=(3, 7),
)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(("n", "d", "k"), [(7, 5, 3), (11, 13, 2), (2, 17, 5)])
def test_the_formula_is_what_the_counter_counts(name, n, d, k):
    law = LAYERS[name]
    assert count(law.make(d, k), n, d) == law.operations(n, d, k)


def test_a_wrong_formula_is_found(monkeypatch):
    monkeypatch.setitem(
        LAYERS,
        "recurrence",
        LAYERS["attention"].__class__(
            **{**LAYERS["recurrence"].__dict__, "operations": LAYERS["attention"].operations}
        ),
    )
    with pytest.raises(AssertionError, match="recurrence takes 4608 operations, not 1152"):
        check_formulas(3)


def test_counted_operations_have_the_exponents_of_the_theory_exactly():
    for law in LAYERS.values():
        if law.by_n is None:
            continue
        for exponent, sizes in ((law.by_n, [(n, 64) for n in (8, 16, 32)]), (law.by_d, [(8, d) for d in (8, 16, 32)])):
            counted = [count(law.make(d, 3), n, d) for n, d in sizes]
            fit = fit_power([n if exponent is law.by_n and sizes[0][1] == 64 else d for n, d in sizes], counted)
            assert fit.exponent == pytest.approx(exponent, abs=1e-12)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_a_planted_power_law_is_found(exponent):
    sizes = [64, 128, 256, 512]
    fit = fit_power(sizes, [7e-6 * size**exponent for size in sizes])
    assert (fit.exponent, fit.factor) == pytest.approx((exponent, 7e-6))
    assert (fit.low, fit.high) == (64, 512)


def test_small_sizes_are_left_out_of_a_fit():
    sizes = [1, 2, 4, 8, 16, 32]
    fit = fit_power(sizes, [100.0, 100.0, 16.0, 64.0, 256.0, 1024.0], last=4)
    assert fit.exponent == pytest.approx(2.0)
    assert fit.low == 4


def test_what_has_no_exponent_is_refused():
    with pytest.raises(ValueError, match=r"2 or more different sizes, got \[8\]"):
        fit_power([8], [1.0])
    with pytest.raises(ValueError, match=r"different sizes, got \[8, 8\]"):
        fit_power([8, 8], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"above 0, got \[\(2, 0.0\)"):
        fit_power([2, 4], [0.0, 1.0])


@pytest.mark.parametrize("n", [2, 5, 11])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_paths_and_steps(n, k):
    for name in ("attention", "attention, fused", "attention with projections"):
        depth = measure_depth(name, n, k)
        assert (depth.steps, depth.path) == (1, 1)
    depth = measure_depth("recurrence", n, k)
    assert (depth.steps, depth.path) == (n, n)
    depth = measure_depth("convolution", n, k)
    assert (depth.steps, depth.path) == (1, -(-(n - 1) // (k - 1)))


def test_a_path_that_never_arrives_is_given_up(monkeypatch):
    monkeypatch.setattr("regard.study.complexity_layers.LIMIT", 5)
    x = noise(1, 3, 2, seed=0)
    with pytest.raises(ValueError, match="after 5 rounds"):
        count_path(layer_rounds(lambda x: 2 * x), x)
    with pytest.raises(ValueError, match="after 5 rounds"):
        count_steps(layer_rounds(lambda x: 2 * x), x, 3 * x)


def test_the_layers_give_outputs_of_their_inputs_shape_and_the_fused_one_the_same_numbers():
    x = noise(2, 7, 5, seed=0)
    made = {name: law.make(5, 3).double()(x) for name, law in LAYERS.items()}
    assert all(found.shape == x.shape for found in made.values())
    assert_close(made["attention"], made["attention, fused"])
    assert_close(made["attention"], torch.softmax(x @ x.mT / 5**0.5, dim=-1) @ x)


def test_a_layer_sits_out_what_would_take_too_long():
    settings = replace(TINY, most=2.0 * 12 * 5 * 8 * 8)
    assert [task.d for task in layer_calls("recurrence", TINY.by_d, settings)] == [4, 8]
    assert [task.d for task in layer_calls("attention", TINY.by_d, settings)] == [4, 8, 16]
    with pytest.raises(ValueError, match="recurrence must take part at 2 or more sizes of d, got 0 of"):
        layer_calls("recurrence", TINY.by_d, replace(TINY, most=1.0))


def test_a_sweep_measures_all_layers_at_all_sizes(monkeypatch):
    monkeypatch.setattr(
        "regard.study.complexity.peak_bytes", lambda make, tasks, device: [2**20 * task.n for task in tasks]
    )
    found = measure_sweep(TINY.by_n, TINY, CPU)
    assert list(found) == list(LAYERS)
    for name, curve in found.items():
        assert [point.n for point in curve.points] == [4, 8, 16]
        assert curve.bytes.exponent == pytest.approx(1.0)
        for point in curve.points:
            assert point.operations == 2 * LAYERS[name].operations(point.n, 5, TINY.k)
            assert 0 < point.time.low <= point.time.median <= point.time.high


def test_machines_that_do_not_tell_their_memory_have_none(monkeypatch, tmp_path):
    monkeypatch.setattr("regard.study.timing.FORGET", tmp_path / "missing")
    assert peak_bytes(lambda task, device: None, [1], CPU) is None
    monkeypatch.setattr("regard.study.complexity.peak_bytes", lambda *_: None)
    assert measure_sweep(TINY.by_n, TINY, CPU)["attention"].bytes is None


def make_bytes(n, device):
    return lambda: torch.ones(n // 4, device=device)


@pytest.mark.slow
def test_memory_is_what_a_call_allocates():
    found = peak_bytes(make_bytes, [2**24, 2**26], CPU)
    assert found is not None
    assert found == pytest.approx([2**24, 2**26], rel=0.1)


def test_turns_are_taken_round_after_round_after_one_that_warms_up():
    told = []
    times = take_turns({name: (lambda name=name: told.append(name)) for name in "ab"}, CPU, rounds=2)
    assert told == list("ab" * 3)
    assert times["a"].low <= times["a"].median <= times["a"].high
    with pytest.raises(ValueError, match="got 0"):
        take_turns({}, CPU, rounds=0)
    assert clock(lambda: None, CPU) >= 0


def test_the_threads_come_back():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_step_by_step_says_what_is_said_in_parallel_and_learns_the_same(family):
    sizes = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "n_heads": 1, "d_ff": 8, "dropout": 0.0}
    torch.manual_seed(0)
    model = build_model(ModelSettings(family=family, **sizes), (4000, 4000)).double()
    batch = make_batch_of(TrainingSweep("tiny", (5,), 15), 5)
    assert_close(stepwise_logits(model, batch), model(batch))
    found = []
    for learner in (LossModule(model, 0.1), StepwiseLoss(model, 0.1)):
        loss, _ = learner(batch)
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    for one, other in zip(*found, strict=True):
        assert_close(one, other)


def make_batch_of(race: TrainingSweep, length: int) -> Batch:
    group = make_group(race, length, seed=0)
    return group.parts[0].batch(CPU, group.n_tokens)


def test_batches_have_as_many_tokens_however_long_sentences_are():
    for length in (3, 5, 15):
        batch = make_batch_of(TrainingSweep("tiny", (), 15), length)
        assert batch.tgt.n_tokens == 15 == int(batch.tgt.token_mask.sum())
        assert batch.src.ids.shape == batch.tgt.inputs.shape == (15 // length, length)
        assert (batch.src.ids > 2).all()


def test_every_way_of_training_is_timed_at_every_length():
    paces = measure_throughput(TINY.training, CPU, rounds=1, seed=0)
    assert [(pace.way, pace.length) for pace in paces] == [(way, n) for n in (3, 5) for way in WAYS]
    assert all(0 < pace.slowest <= pace.tokens_per_second <= pace.fastest for pace in paces)


def test_the_study_says_what_it_does_and_ends_with_its_result(monkeypatch):
    monkeypatch.setattr("regard.study.complexity.peak_bytes", lambda *_: None)
    told = []
    study = run(TINY, CPU, told.append)
    assert told[0] == "longest paths"
    assert [layer.name for layer in study.layers] == list(LAYERS)
    assert study.signature["seed"] == 0
    assert study.signature["threads"] == 1
    assert study.layers[1].depths[-1].path == 7


def test_quick_is_less_of_everything():
    for settings in SETTINGS.values():
        less = quick(settings)
        assert max(less.by_n.sizes) < max(settings.by_n.sizes)
        assert less.rounds < settings.rounds
        for sweep in (less.by_n, less.by_d):
            assert all(len(layer_calls(name, sweep, less)) >= 3 for name in LAYERS)


@pytest.mark.slow
def test_times_follow_the_theory():
    """On a quiet machine: where n is large enough, within 0.15."""
    *_, study = run(SETTINGS["cpu"], CPU)
    for layer in study.layers[:3]:
        for curve in (layer.by_n, layer.by_d):
            assert curve.time.exponent == pytest.approx(curve.theory, abs=0.15), (layer.name, curve.axis)
