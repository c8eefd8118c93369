"""The map that takes a code some steps on, by formula and by fit."""

import pytest
import torch

from regard.position import POSITION
from regard.position.sinusoidal import sinusoids
from regard.study.laws import shift
from regard.study.positions import make, view
from regard.study.shift import find_shift

LENGTH, WIDTH, BASE = 24, 6, 50.0


def seen(scheme, width=WIDTH):
    return view(make(scheme, LENGTH, width, BASE, 0), LENGTH, width)


@pytest.mark.parametrize("base", [BASE, None])
@pytest.mark.parametrize("steps", [1, 5])
def test_formula_and_fit_move_a_sinusoidal_code_alike(steps, base):
    moved = find_shift(seen("sinusoidal"), steps, 3, base)
    assert moved.exact == (base is not None) and moved.place == 3
    torch.testing.assert_close(moved.moved, sinusoids(torch.tensor(3 + steps), WIDTH, BASE))
    torch.testing.assert_close(moved.after, moved.moved)


def test_an_odd_width_is_fitted():
    assert not find_shift(seen("sinusoidal", 5), 1, 0, BASE).exact


@pytest.mark.parametrize("scheme", POSITION)
def test_codes_arrive_where_the_law_holds(scheme):
    what = seen(scheme)
    moved = find_shift(what, 1, 4)
    if what.size() == 0:
        assert moved is None
    elif shift(what, 1, None).holds:
        torch.testing.assert_close(moved.moved, moved.after)


def test_a_place_too_near_the_end_is_the_last_that_can_be_moved():
    assert find_shift(seen("sinusoidal"), 5, LENGTH, BASE).place == LENGTH - 6
    assert find_shift(seen("sinusoidal"), LENGTH, 0, BASE) is None
