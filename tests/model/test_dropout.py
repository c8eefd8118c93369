"""Dropout by 16 random bits: its share, its mean, its gradient, its repeatability."""

import pytest
import torch
from torch.testing import assert_close

from regard.model.dropout import Dropout


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("shape", [(1001, 997), (3, 7, 47_001)])
def test_the_share_and_the_mean_are_kept(rate, shape):
    torch.manual_seed(0)
    y = Dropout(rate)(torch.ones(shape, dtype=torch.float64))
    dropped = float((y == 0).double().mean())
    spread = (rate * (1 - rate) / y.numel()) ** 0.5
    assert abs(dropped - rate) < 5 * spread + 1e-5
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - rate)), rtol=1e-4, atol=0)


def test_neighbours_are_dropped_independently():
    """Four features share one drawn word: knowing one must not tell the next."""
    torch.manual_seed(0)
    kept = (Dropout(0.5)(torch.ones(400_000)) != 0).double().view(-1, 4)
    correlation = torch.corrcoef(kept.T)
    assert float((correlation - torch.eye(4)).abs().max()) < 0.02


def test_gradients_pass_where_features_passed():
    torch.manual_seed(0)
    x = torch.randn(13, 17, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.3)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(grad * x.detach(), y.detach())


def test_nothing_is_dropped_outside_training_or_at_rate_zero():
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_generator_s_state_repeats_it():
    x, layer = torch.ones(101), Dropout(0.5)
    torch.manual_seed(3)
    first, second = layer(x), layer(x)
    torch.manual_seed(3)
    assert_close(layer(x), first)
    assert not first.equal(second)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_outside_its_range_is_refused(rate):
    with pytest.raises(ValueError, match=rf"dropout must lie in \[0, 1\), got {rate}"):
        Dropout(rate)
