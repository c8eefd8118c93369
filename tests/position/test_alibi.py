"""ALiBi's slopes as its paper prints them, and its straight lines."""

import pytest
import torch

from regard.position import ALiBi
from regard.position.alibi import head_slopes
from regard.position.relative import offsets
from tests.parts import B, exactly, noise


def test_eight_heads_have_the_slopes_of_the_paper():
    exactly(torch.tensor(head_slopes(8)), torch.tensor([1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]))


def test_sixteen_heads_interpolate_by_square_roots():
    torch.testing.assert_close(torch.tensor(head_slopes(16)), torch.tensor([2 ** (-h / 2) for h in range(1, 17)]))


def test_twelve_heads_take_eight_slopes_and_every_other_of_sixteen():
    expected = [2.0**-h for h in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5]
    torch.testing.assert_close(torch.tensor(head_slopes(12)), torch.tensor(expected))


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 7, 31, 64])
def test_every_number_of_heads_has_distinct_slopes_below_one(n_heads):
    slopes = head_slopes(n_heads)
    assert len(set(slopes)) == n_heads
    assert 0 < min(slopes) <= max(slopes) < 1


@pytest.mark.parametrize("n_heads", [0, -2])
def test_no_head_is_refused(n_heads):
    with pytest.raises(ValueError, match=f"n_heads must be 1 or more, got {n_heads}"):
        ALiBi(n_heads)


def test_bias_falls_linearly_with_distance():
    q, k = noise(B, 8, 5, 3, seed=1), noise(B, 8, 7, 3, seed=2)
    at_q, at_k = torch.tensor([[4, 0, 90, 3, 3]]), torch.tensor([[0, 1, 2, 3, 4, 50, 90]])
    bias = ALiBi(8).bias(q, k, at_q, at_k)
    for h in range(8):
        for i, left in enumerate(at_q[0]):
            for j, right in enumerate(at_k[0]):
                assert bias[0, h, i, j] == -(2.0 ** -(h + 1)) * abs(int(left) - int(right))


def test_offsets_are_negative_for_keys_that_stand_before():
    exactly(offsets(torch.tensor([[3]]), torch.tensor([[1, 3, 7]])), torch.tensor([[[-2, 0, 4]]]))
