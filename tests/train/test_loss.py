"""The output layer fused with its loss: equal to the plain definition, in value and gradient.

The loss, against PyTorch's own.
R-Drop: its definition by hand, and as part of a step.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.functional import kl_div, log_softmax
from torch.testing import assert_close

from regard.batch import make_batch
from regard.build import build_model
from regard.config import ModelSettings, parse_settings, preset
from regard.train import loss as fused_loss
from regard.train.loss import LossModule, linear_cross_entropy, r_drop_cross_entropy, smoothed_cross_entropy
from tests.parts import leaves, noise

B, T, D, V = 3, 5, 7, 11


def inputs(dtype=torch.float64):
    x, table = leaves([noise(B, T, D, seed=0).to(dtype), noise(V, D, seed=1).to(dtype)])
    generator = torch.Generator().manual_seed(2)
    say, real = torch.randint(V, (B, T), generator=generator), torch.rand(B, T, generator=generator) < 0.7
    return x, table, say, real


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_equals_the_definition(rows, smoothing, monkeypatch):
    monkeypatch.setitem(fused_loss.BLOCK, "cpu", rows * V)
    x, table, say, real = inputs()
    fused, plain = linear_cross_entropy(x, table, say, real, smoothing)
    expected, expected_plain = smoothed_cross_entropy(x @ table.T, say, real, smoothing)
    assert_close(fused, expected)
    assert_close(plain, expected_plain)
    for got, want in zip(
        torch.autograd.grad(0.3 * fused, [x, table]), torch.autograd.grad(0.3 * expected, [x, table]), strict=True
    ):
        assert_close(got, want)


def test_padding_adds_nothing():
    x, table, say, real = inputs()
    changed = torch.where(real[..., None], x, x + 100.0)
    assert_close(linear_cross_entropy(changed, table, say, real, 0.1), linear_cross_entropy(x, table, say, real, 0.1))


def test_large_logits_do_not_overflow():
    x, table, say, real = inputs(torch.float32)
    loss, _ = linear_cross_entropy(1e4 * x.detach(), table, say, real, 0.1)
    assert loss.isfinite()


LOSS_B, LOSS_T, LOSS_V, LOSS_D = 3, 5, 7, 11


def loss_inputs():
    say = torch.randint(LOSS_V, (LOSS_B, LOSS_T), generator=torch.Generator().manual_seed(3))
    real = torch.arange(LOSS_T) < torch.tensor([5, 2, 0])[:, None]
    return say, real


def reference(logits, say, real, smoothing):
    return F.cross_entropy(logits[real], say[real], reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_it_is_pytorchs_in_value_and_gradient(smoothing):
    say, real = loss_inputs()
    logits = noise(LOSS_B, LOSS_T, LOSS_V, seed=1).requires_grad_()
    loss, plain = smoothed_cross_entropy(logits, say, real, smoothing)
    expected = reference(logits, say, real, smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, reference(logits, say, real, 0.0))
    assert not plain.requires_grad
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fused_form_is_the_same(smoothing):
    say, real = loss_inputs()
    x, table = noise(LOSS_B, LOSS_T, LOSS_D, seed=1).requires_grad_(), noise(LOSS_V, LOSS_D, seed=2).requires_grad_()
    loss, plain = linear_cross_entropy(x, table, say, real, smoothing)
    expected, expected_plain = smoothed_cross_entropy(x @ table.T, say, real, smoothing)
    torch.testing.assert_close((loss, plain), (expected, expected_plain))
    torch.testing.assert_close(torch.autograd.grad(loss, (x, table)), torch.autograd.grad(expected, (x, table)))


def test_what_stands_in_the_padding_does_not_count():
    say, real = loss_inputs()
    logits = noise(LOSS_B, LOSS_T, LOSS_V, seed=1)
    other = torch.where(real[..., None], logits, noise(LOSS_B, LOSS_T, LOSS_V, seed=9))
    assert smoothed_cross_entropy(logits, say, real, 0.1) == smoothed_cross_entropy(
        other, (say + ~real) % LOSS_V, real, 0.1
    )


def test_half_precision_is_summed_in_single():
    say, real = loss_inputs()
    logits = noise(LOSS_B, LOSS_T, LOSS_V, seed=1).to(torch.bfloat16)
    loss, _ = smoothed_cross_entropy(logits, say, real, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference(logits.float(), say, real, 0.1))


R_DROP_B, R_DROP_T, R_DROP_V = 2, 3, 5
SAY = torch.tensor([[1, 2, 4], [0, 3, 3]])
REAL = torch.tensor([[True, True, False], [True, False, False]])


def twice(first, second, weight):
    logits = torch.cat([first, second])
    return r_drop_cross_entropy(logits, SAY.repeat(2, 1), REAL.repeat(2, 1), 0.1, weight)


def test_equals_the_divergences_of_the_library():
    first, second = noise(R_DROP_B, R_DROP_T, R_DROP_V, seed=0), noise(R_DROP_B, R_DROP_T, R_DROP_V, seed=1)
    loss, plain = twice(first, second, 3.0)
    each = [smoothed_cross_entropy(logits, SAY, REAL, 0.1) for logits in (first, second)]
    p, q = log_softmax(first, -1), log_softmax(second, -1)
    both = sum(kl_div(a, b, log_target=True, reduction="none").sum(-1) for a, b in ((p, q), (q, p)))
    expected = (each[0][0] + each[1][0]) / 2 + 3.0 / 2 * (both[REAL].sum() / 2)
    assert_close(loss, expected)
    assert_close(plain, (each[0][1] + each[1][1]) / 2)


def test_passes_that_agree_cost_nothing_more():
    logits = noise(R_DROP_B, R_DROP_T, R_DROP_V, seed=0)
    assert_close(twice(logits, logits, 7.0)[0], smoothed_cross_entropy(logits, SAY, REAL, 0.1)[0])


def test_the_gradient_of_the_divergence_passes_a_check():
    logits = noise(2 * R_DROP_B, R_DROP_T, R_DROP_V, seed=0).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: twice(*x.chunk(2), 2.0)[0], [logits])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_without_dropout_a_learner_loses_the_same_twice_as_once(family):
    tables = preset("tiny", family)["model"] | {"d_model": 8, "n_heads": 1, "d_ff": 12, "dropout": 0.0}
    model = build_model(parse_settings(ModelSettings, tables), (17, 17)).double()
    batch = make_batch([[5, 6, 7], [8]], [[7, 6], [9, 8, 5]])
    assert_close(LossModule(model, 0.1, r_drop=5.0)(batch), LossModule(model, 0.1)(batch))


def test_with_dropout_the_passes_differ():
    tables = preset("tiny")["model"] | {"dropout": 0.5}
    torch.manual_seed(0)
    model = build_model(parse_settings(ModelSettings, tables), (17, 17))
    batch = make_batch([[5, 6, 7], [8]], [[7, 6], [9, 8, 5]])
    torch.manual_seed(1)
    strong, _ = LossModule(model, 0.1, r_drop=100.0)(batch)
    torch.manual_seed(1)
    weak, _ = LossModule(model, 0.1, r_drop=1e-9)(batch)
    assert strong > 1.5 * weak
