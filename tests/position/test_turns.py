"""Turns: token, turn and speaker side by side."""

import pytest
import torch

from regard.position import Turns
from regard.position.sinusoidal import sinusoids
from tests.parts import exactly, make_position, noise

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
    places = Turns(8, n_speakers=2).places(25)[0]
    exactly(places[[0, 7, 8, 16, 24]], torch.tensor([[0, 0, 0], [7, 0, 0], [8, 1, 1], [16, 2, 0], [24, 3, 1]]))
