"""Dot products, plain and scaled, against numpy and PyTorch."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regard.attention import Dot, ScaledDot
from regard.mask import Mask
from tests.attention.test_softmax import by_hand
from tests.parts import MASKS, B, E, H, K, Q, dense, gradients, leaves, make_attention, make_inputs, noise


@pytest.mark.parametrize(
    ("attention", "scale"), [(Dot(), 1.0), (ScaledDot(), 1 / math.sqrt(11))], ids=["dot", "scaled"]
)
@pytest.mark.parametrize("kind", MASKS)
def test_equals_numpy(attention, scale, kind):
    (q, k, v), mask = make_inputs("dot"), MASKS[kind](Q, K)
    scores = np.zeros((B, H, Q, K))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = scale * sum(q[b, h, i, e].item() * k[b, h, j, e].item() for e in range(E))
    weights = by_hand(scores, dense(mask).numpy())
    torch.testing.assert_close(attention.scores(q, k), torch.from_numpy(scores))
    torch.testing.assert_close(attention(q, k, v, mask), torch.from_numpy(weights @ v.numpy()))


@pytest.mark.parametrize("kind", [kind for kind, make in MASKS.items() if dense(make(Q, K)).any(dim=-1).all()])
def test_scaled_dot_equals_pytorch_in_value_and_gradient(kind):
    wanted, mask = leaves(make_inputs("scaled_dot")), MASKS[kind](Q, K)
    ours = ScaledDot()(*wanted, mask)
    theirs = F.scaled_dot_product_attention(*wanted, attn_mask=dense(mask))
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours, wanted), gradients(theirs, wanted), strict=True):
        torch.testing.assert_close(a, b)


def test_scaled_dot_with_a_bias_equals_pytorch():
    (q, k, v), bias = make_inputs("scaled_dot"), noise(1, H, Q, K, seed=5)
    torch.testing.assert_close(
        ScaledDot()(q, k, v, Mask(), bias), F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    )


def test_a_scaled_dot_is_a_dot_of_scaled_queries():
    q, k, v = make_inputs("dot")
    torch.testing.assert_close(ScaledDot()(q, k, v), Dot()(q / math.sqrt(E), k, v))


@pytest.mark.parametrize("width", [3, 67])
def test_the_scale_keeps_unit_variance(width):
    q, k = noise(1, 1, 211, width, seed=1), noise(1, 1, 223, width, seed=2)
    near = pytest.approx(1.0, abs=0.1)
    assert ScaledDot().scores(q, k).var().item() == near
    assert Dot().scores(q, k).var().item() / width == near


@pytest.mark.parametrize("value_width", [1, 5, 29])
def test_values_may_have_a_width_of_their_own(value_width):
    attention, (q, k, _) = make_attention("scaled_dot"), make_inputs("scaled_dot")
    v = noise(B, H, K, value_width, seed=3)
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)
