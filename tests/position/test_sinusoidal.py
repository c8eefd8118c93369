"""Sinusoidal codes against the formula, and the rotation that a step is."""

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
import torch

from regard.position.sinusoidal import frequencies, shift_matrix, sinusoids
from tests.parts import make_position


@pytest.mark.parametrize("width", [1, 2, 7, 8])
@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_equals_the_formula_interleaved(width, base):
    expected = np.zeros((13, width))
    for p in range(13):
        for i in range(width):
            angle = p / base ** (2 * (i // 2) / width)
            expected[p, i] = math.cos(angle) if i % 2 else math.sin(angle)
    found = make_position("sinusoidal", width, base=base).codes(torch.arange(13)[None])[0]
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-14)


def test_position_a_million_is_exact():
    getcontext().prec = 60
    turn = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    width, p = 8, 10**6
    angles = [float(p * Decimal(10000) ** (Decimal(-2 * i) / width) % turn) for i in range(width // 2)]
    expected = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
    exact = torch.tensor([[expected]], dtype=torch.float64)
    position = make_position("sinusoidal", width)
    torch.testing.assert_close(position.codes(torch.tensor([[p]])), exact, rtol=0, atol=2e-10)
    single = position.embed(torch.zeros(1, 1, width), torch.tensor([[p]]))  # float32 tokens: only the code is rounded
    torch.testing.assert_close(single, exact.float(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("step", [1, 7, 1000, -3])
def test_a_step_is_one_rotation_of_each_pair_wherever_it_starts(step):
    width, places = 8, torch.arange(3, 11)
    rotation = np.zeros((width, width))
    for i, omega in enumerate(10000.0 ** (-np.arange(0, width, 2) / width)):
        cos, sin = math.cos(omega * step), math.sin(omega * step)
        rotation[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
    before, after = (sinusoids(at, width, 10000.0) for at in (places, places + step))
    torch.testing.assert_close(after, before @ torch.from_numpy(rotation).T, rtol=0, atol=1e-12)
    torch.testing.assert_close(shift_matrix(step, width, 10000.0), torch.from_numpy(rotation))


def test_an_odd_width_has_no_shift_matrix():
    with pytest.raises(ValueError, match="width must be even, so that each sine has its cosine, got 7"):
        shift_matrix(1, 7, 10000.0)


def test_products_of_codes_depend_on_distance_alone():
    codes = sinusoids(torch.arange(31), 12, 10000.0)
    products = codes @ codes.T
    torch.testing.assert_close(products, products.T)
    for distance in range(31):
        diagonal = products.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))


def test_wavelengths_go_from_a_turn_to_ten_thousand_turns():
    found = frequencies(512, 10000.0)
    assert found[0] == 1.0
    ratios = found[1:] / found[:-1]
    torch.testing.assert_close(ratios, ratios[:1].expand_as(ratios))
    assert found[-1].item() == pytest.approx(10000.0 ** (-510 / 512))


@pytest.mark.parametrize("period", [10000, 62832])
def test_codes_do_not_repeat(period):
    places = torch.arange(211)
    away = (sinusoids(places, 8, 10000.0) - sinusoids(places + period, 8, 10000.0)).norm(dim=-1)
    assert away.min() > 0.01


@pytest.mark.parametrize("base", [1.0, 0.0, -2.0])
def test_frequencies_refuse_a_base_of_one_or_less(base):
    with pytest.raises(ValueError, match=f"base must be larger than 1, got {base}"):
        frequencies(8, base)
