"""Exponents over the last sizes, on planted powers."""

import pytest

from regard.study.timing import exponent

SIZES = [64, 128, 256, 512, 1024]


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_a_planted_power_is_found(power):
    assert exponent(SIZES, [7.0 * n**power for n in SIZES]) == pytest.approx(power, abs=1e-9)


def test_what_a_call_costs_by_itself_dies_away_in_the_last_sizes():
    assert exponent(SIZES, [1e4 + n**2 for n in SIZES]) == pytest.approx(2.0, abs=0.1)
    assert exponent(SIZES, [1e6, 1e5, *(float(n) for n in SIZES[2:])]) == pytest.approx(1.0)


def test_unknown_and_small_values_take_no_part():
    assert exponent(SIZES, [None, 0.2, 2.0, 4.0, 8.0], least=1.0) == pytest.approx(1.0)
    assert exponent(SIZES, [None, None, None, 4.0, 8.0]) is None
    assert exponent(SIZES, [0.0, 0.0, 0.0, 4.0, 8.0]) is None
    assert exponent(SIZES, [1.0, 2.0, 4.0]) == pytest.approx(1.0)  # a path that stopped
