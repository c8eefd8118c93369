"""R-Drop: its definition by hand, and as part of a step."""

import pytest
import torch
from torch.nn.functional import kl_div, log_softmax
from torch.testing import assert_close

from regard.batch import make_batch
from regard.build import build_model
from regard.config import ModelSettings, preset, settings
from regard.train.learner import Learner
from regard.train.loss import smoothed_cross_entropy
from regard.train.r_drop import agreeing_cross_entropy

from ..parts import noise

B, T, V = 2, 3, 5
SAY = torch.tensor([[1, 2, 4], [0, 3, 3]])
REAL = torch.tensor([[True, True, False], [True, False, False]])


def twice(first, second, weight):
    logits = torch.cat([first, second])
    return agreeing_cross_entropy(logits, SAY.repeat(2, 1), REAL.repeat(2, 1), 0.1, weight)


def test_equals_the_divergences_of_the_library():
    first, second = noise(B, T, V, seed=0), noise(B, T, V, seed=1)
    loss, plain = twice(first, second, 3.0)
    each = [smoothed_cross_entropy(logits, SAY, REAL, 0.1) for logits in (first, second)]
    p, q = log_softmax(first, -1), log_softmax(second, -1)
    both = sum(kl_div(a, b, log_target=True, reduction="none").sum(-1) for a, b in ((p, q), (q, p)))
    expected = (each[0][0] + each[1][0]) / 2 + 3.0 / 2 * (both[REAL].sum() / 2)
    assert_close(loss, expected)
    assert_close(plain, (each[0][1] + each[1][1]) / 2)


def test_passes_that_agree_cost_nothing_more():
    logits = noise(B, T, V, seed=0)
    assert_close(twice(logits, logits, 7.0)[0], smoothed_cross_entropy(logits, SAY, REAL, 0.1)[0])


def test_the_gradient_of_the_divergence_passes_a_check():
    logits = noise(2 * B, T, V, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: twice(*x.chunk(2), 2.0)[0], [logits])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_without_dropout_a_learner_loses_the_same_twice_as_once(family):
    tables = preset("tiny", family)["model"] | {"d_model": 8, "n_heads": 1, "d_ff": 12, "dropout": 0.0}
    model = build_model(settings(ModelSettings, tables), (17, 17)).double()
    batch = make_batch([[5, 6, 7], [8]], [[7, 6], [9, 8, 5]])
    assert_close(Learner(model, 0.1, r_drop=5.0)(batch), Learner(model, 0.1)(batch))


def test_with_dropout_the_passes_differ():
    tables = preset("tiny")["model"] | {"dropout": 0.5}
    torch.manual_seed(0)
    model = build_model(settings(ModelSettings, tables), (17, 17))
    batch = make_batch([[5, 6, 7], [8]], [[7, 6], [9, 8, 5]])
    torch.manual_seed(1)
    strong, _ = Learner(model, 0.1, r_drop=100.0)(batch)
    torch.manual_seed(1)
    weak, _ = Learner(model, 0.1, r_drop=1e-9)(batch)
    assert strong > 1.5 * weak
