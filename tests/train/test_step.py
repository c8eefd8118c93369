"""Learning rates: laws, and values computed by hand.

One step: what is decayed, how batches add up, and clipping.
"""

import math
from itertools import pairwise

import pytest
import torch

from regard.batch import make_batch
from regard.build import build_model
from regard.config import ModelSettings, TrainSettings, parse_settings, preset
from regard.train.loss import LossModule
from regard.train.step import SCHEDULE, check_schedule, learning_rate, make_optimiser, run_step, set_rate


def make(name, **changes):
    return TrainSettings(schedule=name, lr=2.0, warmup=10, max_steps=110, **changes)


@pytest.mark.parametrize("name", SCHEDULE)
def test_it_rises_in_a_line_to_the_peak_at_warm_up_and_never_again(name):
    settings = make(name)
    rates = [learning_rate(step, settings) for step in range(1, 111)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert max(rates) == rates[9] == 2.0
    assert all(later <= earlier for earlier, later in pairwise(rates[9:]))


def test_inverse_square_root_by_hand():
    assert learning_rate(40, make("inverse_sqrt")) == pytest.approx(1.0)  # four times the warm-up: half
    assert learning_rate(90, make("inverse_sqrt")) == pytest.approx(2 / 3)


def test_cosine_by_hand_and_ends_at_nothing():
    assert learning_rate(60, make("cosine")) == pytest.approx(1.0)
    assert learning_rate(35, make("cosine")) == pytest.approx(1 + math.sqrt(0.5))
    assert learning_rate(110, make("cosine")) == learning_rate(200, make("cosine")) == 0.0


def test_cosine_ends_with_the_minutes_where_they_end_first():
    by_time = make("cosine", max_minutes=2.0)
    assert learning_rate(11, by_time, seconds=60.0) == pytest.approx(1.0)
    assert learning_rate(5, by_time, seconds=60.0) == pytest.approx(1.0)  # warming up
    assert learning_rate(60, by_time, seconds=0.0) == pytest.approx(1.0)
    assert learning_rate(11, by_time, seconds=130.0) == 0.0


def test_constant_stays():
    assert learning_rate(1000, make("constant")) == 2.0


@pytest.mark.parametrize("name", SCHEDULE)
def test_without_warm_up_the_first_step_has_the_whole_rate(name):
    assert learning_rate(1, TrainSettings(schedule=name, lr=2.0, warmup=0, max_steps=10**9)) == pytest.approx(2.0)


def test_what_cannot_be_followed_is_refused():
    with pytest.raises(ValueError, match=r"needs train.max_steps or train.max_minutes as its end, got neither"):
        check_schedule(TrainSettings(schedule="cosine"))


V = 17
SRC = [[5, 6, 7], [8, 9], [10, 11, 12, 13], [14]]
TGT = [[7, 6], [9, 8, 5], [13], [14, 15, 16]]


def make_model(family="transformer", **changes):
    torch.manual_seed(1)
    tables = preset("tiny", family)["model"] | {"d_model": 8, "n_heads": 1, "d_ff": 12, "dropout": 0.0} | changes
    return build_model(parse_settings(ModelSettings, tables), (V, V)).double()


def stepped(batches, **changes):
    """Take one step, and return the gradients it followed and the parameters after it."""
    model = make_model()
    made = TrainSettings(**{"clip": None, "precision": "float32", **changes})
    optimiser = make_optimiser(model, made)
    set_rate(optimiser, 1e-3)
    n_tokens = sum(batch.tgt.n_tokens for batch in batches)
    outputs = run_step(LossModule(model, 0.1), optimiser, batches, 1 / n_tokens, made)
    return {name: p.grad for name, p in model.named_parameters()}, dict(model.named_parameters()), outputs


def test_two_batches_are_one_of_twice_the_size():
    halves = [make_batch(SRC[:1], TGT[:1]), make_batch(SRC[1:], TGT[1:])]
    one, both = stepped([make_batch(SRC, TGT)]), stepped(halves)
    torch.testing.assert_close(both[0], one[0])
    torch.testing.assert_close(both[2], one[2])
    torch.testing.assert_close(both[1], one[1])


def test_the_first_step_of_adam_moves_by_the_rate():
    gradients, after, _ = stepped([make_batch(SRC, TGT)], weight_decay=0.0)
    before = dict(make_model().named_parameters())
    for name, gradient in gradients.items():
        large = gradient.abs() > 1e-5  # so that ε, 1e-9, does not count
        moved = (after[name] - before[name])[large]
        torch.testing.assert_close(moved, -1e-3 * gradient[large].sign(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("clip", [None, 0.01, 1e6])
def test_clipping_bounds_the_norm_and_keeps_the_direction(clip):
    free, _, _ = stepped([make_batch(SRC, TGT)])
    result, _, _ = stepped([make_batch(SRC, TGT)], clip=clip)
    flat_free, flat = (torch.cat([g.flatten() for g in each.values()]) for each in (free, result))
    norm = float(flat_free.norm())
    assert norm > 0.01
    factor = min(1.0, (clip or 1e9) / norm)
    torch.testing.assert_close(flat, flat_free * factor, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_norms_biases_and_tables_are_not_decayed(family):
    model = make_model(family, tie="target")
    decayed, plain = make_optimiser(model, TrainSettings(weight_decay=0.25)).param_groups
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.25, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    free = {names[id(parameter)] for parameter in plain["params"]}
    bound = {names[id(parameter)] for parameter in decayed["params"]}
    assert {"src.table.weight", "tgt.table.weight"} <= free
    assert all(model.get_parameter(name).dim() >= 2 and "table" not in name for name in bound)
    assert all(model.get_parameter(name).dim() < 2 or "table" in name for name in free)
    assert free | bound == set(names.values())
    assert bound
