"""Rotary positions against complex numbers."""

import numpy as np
import pytest
import torch

from regard.position import Rotary
from tests.parts import B, H, Q, exactly, noise


@pytest.mark.parametrize("width", [1, 2, 5, 8])
@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_pairs_turn_as_complex_numbers(width, base):
    q, places = noise(B, H, Q, width, seed=1), torch.tensor([[0, 3, 1, 500, 12]])
    even = width // 2 * 2
    expected = q.clone().numpy()
    for i in range(0, even, 2):
        turn = np.exp(1j * places.numpy() * base ** (-i / even))
        turned = (expected[..., i] + 1j * expected[..., i + 1]) * turn[:, None]
        expected[..., i], expected[..., i + 1] = turned.real, turned.imag
    torch.testing.assert_close(Rotary(base).rotate(q, places), torch.from_numpy(expected))


def test_the_last_feature_of_an_odd_width_stays():
    q = noise(B, H, Q, 7, seed=1)
    exactly(Rotary().rotate(q, torch.arange(Q)[None])[..., -1], q[..., -1])


def test_far_places_keep_the_score_of_their_distance_in_float32():
    q, k = noise(1, 1, 1, 8, seed=1).float(), noise(1, 1, 1, 8, seed=2).float()

    def score(at):
        return Rotary().rotate(q, torch.tensor([[at]])) @ Rotary().rotate(k, torch.tensor([[at + 5]])).mT

    torch.testing.assert_close(score(10**6), score(0), rtol=1e-5, atol=1e-5)
