"""The laws of positions: on schemes whose answer the theory knows, and on planted codes.

The map that takes a code some steps on, by formula and by fit.
"""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.position import POSITION, Position
from regard.position.absolute import Absolute, sinusoids
from regard.study import laws
from regard.study.laws import EncodingView, shift
from regard.study.positions import describe_waves, distinct_up_to, examine, find_shift, make, run_positions, view

REPORTS = {report.name: report for report in run_positions([], length=512, width=128, far=1_000_000)}


def planted(codes, places=None):
    codes = torch.as_tensor(codes, dtype=torch.float64)
    places = torch.arange(len(codes))[:, None] if places is None else places
    return EncodingView("embed", places, codes, codes @ codes.T)


def test_every_scheme_of_the_table_is_reported():
    assert list(REPORTS) == list(POSITION)


def test_sinusoidal_keeps_every_law():
    report = REPORTS["sinusoidal"]
    assert report.shift.value < 1e-12
    assert report.circles.value < 1e-12
    assert report.bounded.value <= 1.0
    for law in ("unique", "bounded", "deterministic", "even_steps", "distance_only", "symmetric", "shift"):
        assert getattr(report, law).holds, law


def test_sinusoidal_codes_are_distinct_to_a_million():
    """Erratum: the codes do not repeat after 10000 positions."""
    assert REPORTS["sinusoidal"].distinct_up_to == 1_000_000


def test_wavelengths_run_geometrically_from_two_pi_to_near_the_base():
    """Erratum: only the slowest pair has a period near 2π · 10000."""
    waves = REPORTS["sinusoidal"].waves
    assert waves.shortest == pytest.approx(2 * math.pi, rel=1e-12)
    assert waves.longest == pytest.approx(2 * math.pi * 10000 ** (126 / 128), rel=1e-9)
    assert waves.geometric < 1e-12
    assert waves.pairs_per_halving == pytest.approx(64 / math.log2(10000), rel=0.1)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("none", {"unique"}),
        ("index", {"bounded", "distance_only", "shift"}),
        ("normalised", {"even_steps", "distance_only", "shift"}),
        ("learned", {"deterministic", "distance_only", "shift"}),
        ("half_wave", set()),
        ("difference", {"symmetric"}),
        ("shaw", {"unique", "deterministic", "symmetric", "shift"}),
        ("t5", {"unique", "deterministic", "symmetric", "shift"}),
        ("alibi", {"bounded", "shift"}),
        ("rotary", set()),
        ("grid_2d", set()),
        ("grid_3d", set()),
        ("turns", {"deterministic", "distance_only"}),
    ],
)
def test_each_scheme_breaks_just_the_laws_it_should(name, broken):
    report = REPORTS[name]
    measured = ("unique", "bounded", "deterministic", "even_steps", "distance_only", "symmetric", "shift")
    assert {law for law in measured if getattr(report, law).holds is False} == broken


def test_parameters_are_counted():
    assert REPORTS["learned"].cost.scheme == 512 * 128
    assert REPORTS["t5"].cost.scheme == 32 * 8
    assert REPORTS["sinusoidal"].cost.scheme == 0
    assert REPORTS["sinusoidal"].cost.layer_concatenated == 4 * REPORTS["sinusoidal"].cost.layer_added
    assert REPORTS["alibi"].cost.layer_concatenated is None


@pytest.mark.parametrize(("length", "width"), [(8, 3), (31, 7), (97, 64), (40, 128)])
def test_any_length_and_width_works(length, width):
    for report in run_positions([], length, width, far=100):
        assert report.codes.isfinite().all()
    assert examine("sinusoidal", length, width, 100.0, 50).unique.holds


def test_a_table_too_short_for_its_width_does_not_pass_for_a_shift_map():
    """With more features than places a least-squares fit is perfect on what it saw, and still wrong elsewhere."""
    assert examine("learned", 40, 128, 10000.0, 10).shift.holds is False


def test_unique_finds_a_planted_twin():
    assert laws.unique(planted([[0.0, 1.0], [2.0, 0.0], [0.0, 1.0]])).holds is False
    law = laws.unique(planted([[0.0, 1.0], [3.0, 5.0], [0.0, 1.5]]))
    assert law.holds
    assert law.value == pytest.approx(0.5)


def test_shift_finds_a_planted_map_and_refuses_noise():
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(5, 5, generator=generator, dtype=torch.float64)).Q
    codes = [torch.randn(5, generator=generator, dtype=torch.float64)]
    for _ in range(40):
        codes.append(turn @ codes[-1])
    assert laws.shift(planted(torch.stack(codes)), 1, None).holds
    assert laws.shift(planted(torch.stack(codes)), 1, turn).holds
    assert not laws.shift(planted(torch.stack(codes)), 1, turn.T).holds
    assert not laws.shift(planted(torch.randn(41, 5, generator=generator, dtype=torch.float64)), 1, None).holds


def test_profile_is_the_mean_of_each_diagonal():
    codes = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    products = codes @ codes.T
    expected = torch.stack([products.diagonal(k).mean() for k in range(7)])
    assert_close(laws.profile(planted(codes)), expected)


def test_flips_count_like_a_binary_counter():
    """Erratum-free likeness: bit b of 0 … 63 flips every 2^b numbers."""
    n = torch.arange(64)
    bits = torch.stack([n >> b & 1 for b in range(6)], dim=1) * 2.0 - 1.0
    spread = torch.stack([bits, torch.zeros_like(bits)], dim=-1).flatten(1)  # bits in every second feature
    assert laws.flips(planted(spread)).tolist() == [63, 31, 15, 7, 3, 1]


def test_waves_are_none_for_codes_that_do_not_turn():
    assert describe_waves(planted(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))) is None


class Wrapped(Absolute):
    """Repeats after seven positions."""

    def codes(self, positions):
        return (positions % 7)[..., None].double().expand(*positions.shape, self.width)


class Shut(Position):
    """Opens no door."""


def test_distinct_up_to_finds_the_first_repetition():
    assert distinct_up_to(Wrapped(3), far=50, width=3, chunk=8) == 6
    assert distinct_up_to(make("sinusoidal", 8, 4, 10000.0, 0), far=300, width=4, chunk=64) == 300
    assert distinct_up_to(make("learned", 8, 4, 10000.0, 0), far=300, width=4) is None


def test_a_scheme_is_seen_through_the_door_it_opens():
    doors = {name: report.door for name, report in REPORTS.items()}
    assert doors["rotary"] == "rotate"
    assert {name for name, door in doors.items() if door == "bias"} == {"difference", "shaw", "t5", "alibi"}
    assert {name for name, door in doors.items() if door == "none"} == {"none"}
    assert view(Shut(), 5, 3).door == "none"


def test_relative_schemes_show_what_they_add_at_each_distance():
    codes = view(make("alibi", 8, 16, 10000.0, 0), 8, 16).codes  # (distance, head)
    slopes = torch.tensor([2.0**-h for h in range(1, 9)], dtype=torch.float64)
    assert_close(codes, -torch.arange(8, dtype=torch.float64)[:, None] * slopes)


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
