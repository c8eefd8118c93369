"""Difference codes: the fast bias against codes of differences literally built."""

import math

import pytest
import torch

from regard.position import Difference
from tests.parts import B, H, K, Q, exactly, noise


@pytest.mark.parametrize("width", [1, 2, 7, 8])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_bias_equals_the_product_with_the_code_of_the_difference(width, scale):
    position = Difference(width, base=500.0, scale=scale)
    q, k = noise(B, H, Q, width, seed=1), noise(B, H, K, width, seed=2)
    at_q, at_k = torch.tensor([[0, 4, 9, 2, 700]]), torch.tensor([[3, 0, 1, 8, 2, 900, 5]])
    codes = position.code(at_q[:, :, None] - at_k[:, None, :], width)  # (1, Q, K, E)
    expected = torch.einsum("bhqe,xqke->bhqk", q, codes) * (width**-0.5 if scale is None else scale)
    torch.testing.assert_close(position.bias(q, k, at_q, at_k), expected)


def test_the_code_of_a_difference_is_sinusoidal_for_either_sign():
    width, differences = 5, [-7, 0, 3]
    expected = [
        [(math.cos if i % 2 else math.sin)(d / 10000 ** (2 * (i // 2) / width)) for i in range(width)]
        for d in differences
    ]
    found = Difference(width).code(torch.tensor(differences), width)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_code_of_a_difference_is_turned_back_by_the_other_sign():
    found = Difference(4).code(torch.tensor([6, -6]), 4)
    exactly(found[0, 1::2], found[1, 1::2])
    exactly(found[0, ::2], -found[1, ::2])


def test_far_places_keep_the_bias_of_their_distance_in_float32():
    q, k = noise(1, 1, 1, 8, seed=1).float(), noise(1, 1, 1, 8, seed=2).float()
    near, far = (Difference(8).bias(q, k, torch.tensor([[at]]), torch.tensor([[at + 5]])) for at in (0, 10**6))
    torch.testing.assert_close(far, near, rtol=1e-5, atol=1e-5)
