"""Codes of single positions, by hand: index, normalised, half wave, learned.

Grids: a cell's code is the codes of its coordinates side by side.
Sinusoidal codes against the formula, and the rotation that a step is.
Turns: token, turn and speaker side by side.
"""

import math
from decimal import Decimal, getcontext

import numpy as np
import pytest
import torch

from regard.position import Grid, Turns
from regard.position.absolute import frequencies, shift_matrix, sinusoids
from tests.parts import B, E, exactly, make_places, make_position, noise


def codes(name, places, width=3, **options):
    return make_position(name, width, **options).codes(torch.tensor([places]))[0]


def test_index_is_the_position_in_every_feature():
    exactly(codes("index", [0, 1, 5]), torch.tensor([[0.0] * 3, [1.0] * 3, [5.0] * 3], dtype=torch.float64))


def test_normalised_is_the_share_of_the_last_position():
    expected = torch.tensor([[0.0] * 3, [0.25] * 3, [1.0] * 3], dtype=torch.float64)
    exactly(codes("normalised", [0, 1, 4]), expected)


def test_normalised_puts_a_single_token_at_zero():
    exactly(codes("normalised", [0]), torch.zeros(1, 3, dtype=torch.float64))


def test_normalised_counts_each_row_by_itself_and_padding_at_zero():
    rows = make_position("normalised", 1).codes(torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]]))[..., 0]
    exactly(rows, torch.tensor([[0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 0.5, 1.0, 0.0, 0.0]], dtype=torch.float64))


def test_normalised_steps_mean_something_else_in_each_sentence():
    position = make_position("normalised")
    full, part = (position.codes(make_places(position, 0, n)) for n in (7, 5))
    assert (full[:, 1:5] - part[:, 1:]).abs().min() > 0.05


def test_half_wave_goes_half_around():
    quarter = codes("half_wave", [0, 2, 1], width=5, max_len=4)
    half = math.sqrt(0.5)
    expected = [[0.0, 1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0, 1.0], [half] * 5]
    torch.testing.assert_close(quarter, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)


def test_half_wave_codes_are_unique_to_the_end():
    found = codes("half_wave", range(101), width=2, max_len=101)
    assert torch.pdist(found).min() > 0.03


def test_learned_is_a_row_of_the_table():
    position = make_position("learned", max_len=11)
    places = torch.tensor([[3, 3, 10], [0, 7, 1]])
    found = position.codes(places)
    for b in range(B):
        for t in range(3):
            exactly(found[b, t], position.table[places[b, t]])


def test_learned_rows_get_a_gradient_where_they_were_used():
    position = make_position("learned", max_len=7)
    position.embed(noise(B, 3, E, seed=1), torch.tensor([[2, 2, 5]])).sum().backward()
    used = torch.zeros(7, dtype=torch.float64)
    used[2], used[5] = 2 * B, B
    exactly(position.table.grad, used[:, None].expand(7, E))


@pytest.mark.parametrize("name", ["sinusoidal", "learned"])
def test_embedding_adds_the_codes(name):
    position, x = make_position(name), noise(B, 5, E, seed=1)
    places = make_places(position, 2, 5)
    exactly(position.embed(x, places), x + position.codes(places))


CELL = torch.tensor([[[3, 0, 7], [2, 5, 1]]])


SHARES = [
    ("grid_2d", 8, (4, 4)),
    ("grid_2d", 6, (4, 2)),
    ("grid_2d", 7, (4, 3)),
    ("grid_2d", 3, (2, 1)),
    ("grid_3d", 9, (4, 2, 3)),
    ("grid_3d", 11, (4, 4, 3)),
    ("grid_3d", 3, (1, 1, 1)),
]


@pytest.mark.parametrize(("name", "width", "shares"), SHARES)
def test_each_axis_has_its_share_of_the_width_in_pairs(name, width, shares):
    cells = CELL[..., : len(shares)]
    found = make_position(name, width, base=100.0).codes(cells)
    for axis, part in enumerate(found.split(shares, dim=-1)):
        exactly(part, sinusoids(cells[..., axis], shares[axis], 100.0))


def test_a_cell_by_hand():
    sin, cos = torch.sin, torch.cos
    one, two = torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    expected = torch.stack([sin(one), cos(one), sin(two), cos(two)])
    exactly(Grid(4, n_axes=2).codes(torch.tensor([[[1, 2]]]))[0, 0], expected)


def test_cells_of_an_image_have_distinct_codes():
    cells = torch.cartesian_prod(torch.arange(11), torch.arange(13))[None]
    assert torch.pdist(make_position("grid_2d", 8).codes(cells)[0]).min() > 0.1


@pytest.mark.parametrize(("name", "width", "n_axes"), [("grid_2d", 1, 2), ("grid_3d", 2, 3)])
def test_fewer_features_than_axes_are_refused(name, width, n_axes):
    with pytest.raises(ValueError, match=f"width must have a feature for each of the {n_axes} axes, got {width}"):
        make_position(name, width)


def test_cells_are_read_row_by_row():
    exactly(
        Grid(4, n_axes=2).first_positions(7)[0], torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0]])
    )
    cube = [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]
    exactly(Grid(6, n_axes=3).first_positions(5)[0], torch.tensor(cube))


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


SAID = torch.tensor([[[0, 0, 0], [1, 0, 0], [2, 1, 2], [3, 2, 1]]])  # token, turn, speaker


@pytest.mark.parametrize(("width", "quarter"), [(11, 2), (8, 2), (3, 1)])
def test_turn_and_speaker_take_a_quarter_each(width, quarter):
    position = make_position("turns", width, n_speakers=3, base=100.0)
    token, turn, speaker = position.codes(SAID).split((width - 2 * quarter, quarter, quarter), dim=-1)
    exactly(token, sinusoids(SAID[..., 0], width - 2 * quarter, 100.0))
    exactly(turn, sinusoids(SAID[..., 1], quarter, 100.0))
    exactly(speaker, position.speakers[SAID[..., 2]])


def test_speakers_get_a_gradient_for_each_word_they_say():
    position = make_position("turns", 8, n_speakers=3)
    position.embed(noise(1, 4, 8, seed=1), SAID).sum().backward()
    exactly(position.speakers.grad, torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64)[:, None].expand(3, 2))


def test_a_speaker_past_the_table_is_refused():
    with pytest.raises(ValueError, match="speakers must be below 2, the end of the table, got 2"):
        make_position("turns", 8).embed(noise(1, 4, 8, seed=1), SAID)


@pytest.mark.parametrize("n_speakers", [0, -1])
def test_nobody_speaking_is_refused(n_speakers):
    with pytest.raises(ValueError, match=f"n_speakers must be 1 or more, got {n_speakers}"):
        Turns(8, n_speakers)


def test_fewer_features_than_parts_are_refused():
    with pytest.raises(ValueError, match="width must have a feature for token, turn and speaker, got 2"):
        Turns(2)


def test_speakers_take_turns_of_eight_tokens():
    places = Turns(8, n_speakers=2).first_positions(25)[0]
    exactly(places[[0, 7, 8, 16, 24]], torch.tensor([[0, 0, 0], [7, 0, 0], [8, 1, 1], [16, 2, 0], [24, 3, 1]]))
