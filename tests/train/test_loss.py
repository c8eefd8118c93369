"""The loss, against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from regard.train.fused_loss import linear_cross_entropy
from regard.train.loss import smoothed_cross_entropy
from tests.parts import noise

B, T, V, D = 3, 5, 7, 11


def inputs():
    say = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(3))
    real = torch.arange(T) < torch.tensor([5, 2, 0])[:, None]
    return say, real


def reference(logits, say, real, smoothing):
    return F.cross_entropy(logits[real], say[real], reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_it_is_pytorchs_in_value_and_gradient(smoothing):
    say, real = inputs()
    logits = noise(B, T, V, seed=1).requires_grad_()
    loss, plain = smoothed_cross_entropy(logits, say, real, smoothing)
    expected = reference(logits, say, real, smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(plain, reference(logits, say, real, 0.0))
    assert not plain.requires_grad
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_fused_form_is_the_same(smoothing):
    say, real = inputs()
    x, table = noise(B, T, D, seed=1).requires_grad_(), noise(V, D, seed=2).requires_grad_()
    loss, plain = linear_cross_entropy(x, table, say, real, smoothing)
    expected, expected_plain = smoothed_cross_entropy(x @ table.T, say, real, smoothing)
    torch.testing.assert_close((loss, plain), (expected, expected_plain))
    torch.testing.assert_close(torch.autograd.grad(loss, (x, table)), torch.autograd.grad(expected, (x, table)))


def test_what_stands_in_the_padding_does_not_count():
    say, real = inputs()
    logits = noise(B, T, V, seed=1)
    other = torch.where(real[..., None], logits, noise(B, T, V, seed=9))
    assert smoothed_cross_entropy(logits, say, real, 0.1) == smoothed_cross_entropy(other, (say + ~real) % V, real, 0.1)


def test_half_precision_is_summed_in_single():
    say, real = inputs()
    logits = noise(B, T, V, seed=1).to(torch.bfloat16)
    loss, _ = smoothed_cross_entropy(logits, say, real, 0.1)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, reference(logits.float(), say, real, 0.1))
