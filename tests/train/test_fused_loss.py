"""The output layer fused with its loss: equal to the plain definition, in value and gradient."""

import pytest
import torch
from torch.testing import assert_close

from regard.train import fused_loss
from regard.train.fused_loss import linear_cross_entropy
from regard.train.loss import smoothed_cross_entropy

from ..parts import leaves, noise

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
