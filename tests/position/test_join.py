"""Adding or concatenating codes."""

import pytest
import torch

from regard.position.join import add, concatenate
from tests.parts import B, E, exactly, make_places, make_position, noise

T, WIDTH = 5, 3


@pytest.mark.parametrize("batch", [1, B])
def test_adding_keeps_the_width(batch):
    x, codes = noise(B, T, E, seed=1), noise(batch, T, E, seed=2)
    for b in range(B):
        exactly(add(x, codes)[b], x[b] + codes[b % batch])


@pytest.mark.parametrize("batch", [1, B])
def test_concatenating_sets_codes_beside_vectors(batch):
    x, codes = noise(B, T, E, seed=1), noise(batch, T, WIDTH, seed=2)
    joined = concatenate(x, codes)
    exactly(joined[..., :E], x)
    exactly(joined[..., E:], codes.expand(B, T, WIDTH))


def test_adding_another_width_is_refused():
    with pytest.raises(ValueError, match="must be as wide as the vectors, 11, got 3"):
        add(noise(B, T, E, seed=1), noise(1, T, WIDTH, seed=2))


@pytest.mark.parametrize("name", ["index", "normalised", "sinusoidal", "learned", "half_wave", "grid_2d", "turns"])
def test_schemes_join_as_they_are_told(name):
    x = noise(B, T, E, seed=1)
    for width, join, expected in ((E, "add", E), (5, "concatenate", E + 5)):
        position = make_position(name, width, join=join)
        places = make_places(position, 0, T)
        found = position.embed(x, places)
        assert found.shape == (B, T, expected)
        codes = position.codes(places)
        torch.testing.assert_close(found, x + codes if join == "add" else torch.cat([x, codes.expand(B, T, 5)], dim=-1))
