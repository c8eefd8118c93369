"""What circulates about attention and is wrong: one test for each line of docs/errata.md that no other file has."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import ScaledDot
from regard.build import build_heads
from regard.config import HeadsSettings
from regard.model.heads import split_heads

from .parts import noise


def test_a_head_is_d_model_over_h_wide():
    layer = build_heads(HeadsSettings(d_model=512, n_heads=8))
    assert split_heads(layer.w_q(torch.zeros(1, 3, 512)), 8).shape == (1, 8, 3, 64)


def test_scaled_dot_has_no_tanh_around_its_output():
    v = torch.full((1, 1, 1, 5), 1000.0)
    assert_close(ScaledDot()(torch.ones(1, 1, 2, 5), torch.ones(1, 1, 1, 5), v), v.expand(1, 1, 2, 5))


def test_scaled_dot_has_the_root_of_the_width_inside_the_softmax():
    q, k = noise(1, 1, 3, 7, seed=0), noise(1, 1, 5, 7, seed=1)
    expected = torch.softmax(q @ k.transpose(-1, -2) / 7**0.5, dim=-1)
    assert_close(ScaledDot().weights(q, k), expected)


def test_there_is_one_value_for_each_key_not_for_each_query():
    q, k = torch.ones(1, 1, 3, 7), torch.ones(1, 1, 5, 7)
    with pytest.raises(ValueError, match=r"one value for each key, got .* v \(1, 1, 3, 7\)"):
        ScaledDot()(q, k, torch.ones(1, 1, 3, 7))


def test_queries_keys_and_values_are_linear_in_the_inputs_and_weights_are_not():
    layer = build_heads(HeadsSettings(d_model=6, n_heads=2)).double()
    x, y = noise(1, 4, 6, seed=0), noise(1, 4, 6, seed=1)
    for projection in (layer.w_q, layer.w_k, layer.w_v):
        assert_close(projection(x + y) + projection(0 * x), projection(x) + projection(y))
    weights = layer.attention.weights(*(split_heads(w(x), 2) for w in (layer.w_q, layer.w_k)))
    assert_close(weights.sum(dim=-1), torch.ones(1, 2, 4, dtype=torch.float64))
