"""Codes of single positions, by hand: index, normalised, half wave, learned."""

import math

import pytest
import torch

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
