"""The laws of positions: on schemes whose answer the theory knows, and on planted codes.

The map that takes a code some steps on, by formula and by fit.
"""

import math
from functools import cache

import pytest
import torch
from torch.testing import assert_close

from regard.build import build_model
from regard.checkpoint.weights import Checkpoint, save_model
from regard.config import ModelSettings, PartSettings, Settings
from regard.position import POSITION, Position
from regard.position.absolute import Absolute, sinusoids
from regard.study import laws
from regard.study.laws import EncodingView, shift
from regard.study.position_views import distinct_up_to, find_shift, make, model_schemes, view
from regard.study.positions import describe_waves, examine, measure, positions_table, run_positions
from tests.pipeline.writers import TOKENIZER


@cache
def examined(name):
    return examine(name, 512, 128, base=10_000.0, far=1_000_000 if name == "sinusoidal" else 1000)


def planted(codes, places=None):
    codes = torch.as_tensor(codes, dtype=torch.float64)
    places = torch.arange(len(codes))[:, None] if places is None else places
    return EncodingView.of_codes("embed", places, codes)


def test_every_scheme_of_the_table_is_reported():
    assert [report.name for report in run_positions([], length=16, width=16, far=100)] == list(POSITION)


def test_sinusoidal_keeps_every_law():
    report = examined("sinusoidal")
    assert report.shift.value < 1e-12
    assert report.circles.value < 1e-12
    assert report.bounded.value <= 1.0
    for law in ("unique", "bounded", "deterministic", "even_steps", "distance_only", "symmetric", "shift"):
        assert getattr(report, law).holds, law


def test_sinusoidal_codes_are_distinct_to_a_million():
    """Erratum: the codes do not repeat after 10000 positions."""
    assert examined("sinusoidal").distinct_up_to == 1_000_000


def test_wavelengths_run_geometrically_from_two_pi_to_near_the_base():
    """Erratum: only the slowest pair has a period near 2π · 10000."""
    waves = examined("sinusoidal").waves
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
        ("shaw", {"unique", "deterministic", "symmetric"}),  # 17 independent vectors: any map of them is linear
        ("t5", {"unique", "deterministic", "symmetric", "shift"}),
        ("alibi", {"bounded", "shift"}),
        ("rotary", set()),
        ("grid_2d", set()),
        ("grid_3d", set()),
        ("turns", {"deterministic", "distance_only"}),
    ],
)
def test_each_scheme_breaks_just_the_laws_it_should(name, broken):
    report = examined(name)
    measured = ("unique", "bounded", "deterministic", "even_steps", "distance_only", "symmetric", "shift")
    assert {law for law in measured if getattr(report, law).holds is False} == broken


def test_parameters_are_counted():
    assert examined("learned").cost.scheme == 512 * 128
    assert examined("t5").cost.scheme == 32 * 8
    assert examined("sinusoidal").cost.scheme == 0
    assert examined("sinusoidal").cost.layer_concatenated == 4 * examined("sinusoidal").cost.layer_added
    assert examined("alibi").cost.layer_concatenated is None


@pytest.mark.parametrize(("length", "width"), [(8, 3), (31, 7), (97, 64), (40, 128)])
def test_any_length_and_width_works(length, width):
    for report in run_positions([], length, width, far=100):
        assert report.codes.isfinite().all()
    assert examine("sinusoidal", length, width, 100.0, 50).unique.holds


@pytest.mark.parametrize("length", [40, 129])
def test_a_table_too_short_for_its_width_does_not_pass_for_a_shift_map(length):
    """With no more pairs than features a least-squares fit is perfect whatever the codes: nothing is measured."""
    assert examine("learned", length, 128, 10000.0, 10).shift == laws.NOTHING


@pytest.mark.parametrize("length", [40, 64, 128, 300])
def test_codes_that_have_nothing_to_do_with_each_other_miss_a_shift_by_their_own_size(length):
    """At twice the width too, where a map fitted to one half of the codes is off by 52 times on the other."""
    report = examine("learned", length, 32, 10000.0, 10, [1, 7])
    for check in report.shifts:
        assert check.value == pytest.approx(1.0, abs=0.15), check


def test_the_length_that_is_asked_for_is_measured():
    reports = {report.name: report for report in run_positions(["index", "normalised"], length=2801, width=4, far=10)}
    assert reports["index"].bounded.value == 2800
    assert reports["normalised"].unique.value == pytest.approx(2 / 2800)
    assert all(report.n_positions == report.n_from == len(report.profile) == 2801 for report in reports.values())


def products_of(what):
    everyone = torch.arange(len(what.positions))
    return what.products(everyone, everyone)


@pytest.mark.parametrize("name", ["sinusoidal", "shaw", "t5", "grid_2d", "turns"])
def test_products_by_offset_are_those_of_all_pairs(name, monkeypatch):
    """In blocks, in a table or sorted: against the plain definition over every pair."""
    what = view(make(name, 29, 6, 10000.0, 0), 29, 6)
    products = products_of(what)
    gaps = what.positions[None] - what.positions[:, None]
    monkeypatch.setattr(laws, "BLOCK", 100)
    for most in (laws.MAX_SORTED, 29 * 29 * what.n_heads):
        monkeypatch.setattr(laws, "MAX_SORTED", most)
        found = laws.by_offset(what)
        assert len(found.offsets) == len(torch.unique(gaps.flatten(0, 1), dim=0))
        for offset, mean, least, largest in zip(found.offsets, found.mean, found.least, found.largest, strict=True):
            same = products[(gaps == offset).all(dim=-1)]
            assert_close(torch.stack([mean, least, largest]), torch.stack([same.mean(), same.min(), same.max()]))


def test_beyond_the_budget_a_sample_of_positions_is_looked_from(monkeypatch):
    """The sample finds what all pairs show, and the report says how many positions it looked from."""
    monkeypatch.setattr(laws, "MAX_PRODUCTS", 64 * 10)
    monkeypatch.setattr(laws, "MAX_DISTANCES", 64 * 20)
    for name, holds in (("sinusoidal", True), ("learned", False)):
        report = examine(name, 64, 8, 10000.0, 10)
        assert report.n_from == 10 and report.distance_only.holds is holds and report.unique.holds
    assert (
        "Drawn at random: by distance, from 10 positions to all (learned); unique, from 20 positions"
        in positions_table([report], 64, 8).caption
    )
    assert laws.unique(planted([[float(n % 50)] for n in range(64)])).value == 0.0


def test_nearest_codes_are_found_where_products_lose_their_digits():
    codes = 1e4 + torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    codes[31] = codes[7] + torch.tensor([3e-7, 4e-7, 0.0])
    assert laws.unique(planted(codes)).value == pytest.approx(5e-7, rel=1e-4)


@pytest.mark.parametrize("steps", [0, 24, -24])
def test_a_shift_that_no_two_positions_are_apart_is_refused(steps):
    with pytest.raises(ValueError, match=f"less than the length 24, got {steps}"):
        next(run_positions(["sinusoidal"], 24, 6, far=10, shifts=[1, steps]))


def test_codes_beyond_memory_are_refused():
    with pytest.raises(ValueError, match="got 1,000,000 times 128"):
        next(run_positions([], 1_000_000, 128))


@pytest.mark.parametrize("steps", [-3, 1, 17])
def test_a_shift_is_linear_with_sine_and_cosine_and_not_with_sines_alone(steps):
    both, alone = (examine(name, 256, 16, 10000.0, 10, [steps]).shift for name in ("sinusoidal", "sines"))
    assert both.holds and both.value < 1e-12
    assert alone.holds is False and alone.value > 1e-3


def test_products_depend_on_distance_with_sine_and_cosine_and_not_with_sines_alone():
    assert examine("sinusoidal", 64, 16, 10000.0, 10).distance_only.holds
    assert examine("sines", 64, 16, 10000.0, 10).distance_only.value > 0.1


def test_the_map_has_the_score_of_every_two_positions():
    for name in ("sinusoidal", "alibi"):
        report = examine(name, 80, 8, 10000.0, 10)
        assert_close(report.map, products_of(view(make(name, 80, 8, 10000.0, 0), 64, 8)))


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
    assert_close(laws.profile(planted(codes), laws.by_offset(planted(codes))), expected)


def test_flips_count_like_a_binary_counter():
    """Erratum-free likeness: bit b of 0 … 63 flips every 2^b numbers."""
    n = torch.arange(64)
    bits = torch.stack([n >> b & 1 for b in range(6)], dim=1) * 2.0 - 1.0
    spread = torch.stack([bits, torch.zeros_like(bits)], dim=-1).flatten(1)  # bits in every second feature
    assert laws.flips(planted(spread)).tolist() == [63, 31, 15, 7, 3, 1]
    assert examined("sinusoidal").counter.bit_flips == [511, 255, 127, 63, 31, 15, 7, 3, 1]
    assert examined("sinusoidal").counter.flips[0] == 511 // math.pi
    assert examined("t5").counter is None


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
    doors = {name: examined(name).door for name in POSITION}
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


def saved_model(folder, position):
    made = Settings(
        model=ModelSettings(
            n_encoder_layers=1, n_decoder_layers=1, d_model=8, n_heads=2, d_ff=8, position=position, tie="none"
        ),
    )
    torch.manual_seed(3)
    model = build_model(made.model, (TOKENIZER.vocab_size("src"), TOKENIZER.vocab_size("tgt")))
    save_model(folder, Checkpoint(model, TOKENIZER, made), {})
    return model


@pytest.mark.parametrize("name", ["learned", "t5", "shaw", "alibi", "rotary", "sinusoidal", "difference"])
def test_the_encodings_of_a_model_are_measured_as_they_are(tmp_path, name):
    options = {"max_len": 21} if name == "learned" else {}
    model = saved_model(tmp_path / "model", PartSettings(name, options))
    encoder, decoder = model_schemes(str(tmp_path / "model"), 20)
    assert (encoder.label, decoder.label) == (f"encoder: {name}", f"decoder: {name}")
    report = measure(decoder, 30)
    assert report.deterministic == laws.NOTHING and report.n_positions == 20
    if name == "learned":
        assert_close(report.codes, model.tgt.position.table[:20].detach().double())
    if name == "t5":  # a decoder's distances go back
        assert_close(report.codes[:5], model.tgt.position.table[:5].detach().double())
    if name == "shaw":
        back = model.tgt.position.keys.detach().double()[:17].flip(0)
        assert_close(report.codes[:17], back * 4**-0.5)


def test_a_model_with_codes_beside_the_vectors_is_measured(tmp_path):
    saved_model(tmp_path / "model", PartSettings("sinusoidal", {"join": "concatenate"}))
    report = measure(model_schemes(str(tmp_path / "model"), 20)[0], 30)
    assert report.codes.shape == (20, 2) and report.shift.holds and report.distinct_up_to == 30


def test_a_length_past_the_end_of_a_models_table_is_refused(tmp_path):
    saved_model(tmp_path / "model", PartSettings("learned", {"max_len": 21}))
    assert [scheme.length for scheme in model_schemes(str(tmp_path / "model"), None)] == [21, 21]
    with pytest.raises(ValueError, match="at most 21, the end of the encoder's table, got 22"):
        model_schemes(str(tmp_path / "model"), 22)
