"""One step: what is decayed, how batches add up, and clipping."""

import pytest
import torch

from regard.batch import make_batch
from regard.build import build_model
from regard.config import ModelSettings, TrainSettings, preset, settings
from regard.train.learner import Learner
from regard.train.step import make_optimiser, run_step, set_rate

V = 17
SRC = [[5, 6, 7], [8, 9], [10, 11, 12, 13], [14]]
TGT = [[7, 6], [9, 8, 5], [13], [14, 15, 16]]


def make_model(family="transformer", **changes):
    torch.manual_seed(1)
    tables = preset("tiny", family)["model"] | {"d_model": 8, "n_heads": 1, "d_ff": 12, "dropout": 0.0} | changes
    return build_model(settings(ModelSettings, tables), (V, V)).double()


def stepped(batches, **changes):
    """Takes one step, and gives the gradients it followed and the parameters after it."""
    model = make_model()
    made = TrainSettings(**{"clip": None, "precision": "float32", **changes})
    optimiser = make_optimiser(model, made)
    set_rate(optimiser, 1e-3)
    n_tokens = sum(batch.tgt.n_tokens for batch in batches)
    told = run_step(Learner(model, 0.1), optimiser, batches, 1 / n_tokens, made)
    return {name: p.grad for name, p in model.named_parameters()}, dict(model.named_parameters()), told


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
    found, _, _ = stepped([make_batch(SRC, TGT)], clip=clip)
    flat_free, flat = (torch.cat([g.flatten() for g in each.values()]) for each in (free, found))
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
