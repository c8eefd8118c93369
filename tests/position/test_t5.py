"""T5's buckets against whole-number arithmetic, and its table."""

import pytest
import torch

from regard.position import T5
from tests.parts import B, H, exactly, make_position, noise


def bucket(offset: int, n_buckets: int, max_distance: int, sees: str) -> int:
    """Gives the bucket of key position less query position, after the description in arXiv:1910.10683, section 2.1.

    Of the buckets of one direction the first half hold one distance each. The edges of the others grow by one factor
    from there to `max_distance`: bucket `near + j` starts at `near · (max_distance / near)^(j / (n − near))`. Raised to
    the power n − near both sides are whole numbers, so no rounding can move an edge.
    """
    n = n_buckets // 2 if sees == "both" else n_buckets
    ahead = n if sees == "both" and offset > 0 else 0
    distance = abs(offset) if sees == "both" else max(0, -offset)
    near = n // 2
    if distance < near:
        return ahead + distance
    steps = n - near
    passed = [j for j in range(steps) if distance**steps * near**j >= max_distance**j * near**steps]
    return ahead + near + max(passed)


SETTINGS = [(32, 128), (32, 1000), (8, 20), (20, 160), (6, 24), (4, 3), (40, 1280)]


@pytest.mark.parametrize(("n_buckets", "max_distance"), SETTINGS)
@pytest.mark.parametrize("sees", ["both", "past"])
def test_buckets_equal_the_description(n_buckets, max_distance, sees):
    if sees == "past":
        max_distance = max(max_distance, n_buckets)
    offset = torch.arange(-3 * max_distance, 3 * max_distance + 1)
    expected = [bucket(int(o), n_buckets, max_distance, sees) for o in offset]
    exactly(T5(1, n_buckets, max_distance, sees).buckets(offset), torch.tensor(expected))


@pytest.mark.parametrize(("n_buckets", "max_distance"), SETTINGS)
def test_buckets_never_fall_with_distance_and_all_are_used(n_buckets, max_distance):
    found = T5(1, n_buckets, max_distance).buckets(torch.arange(0, -4 * max_distance, -1))
    assert (found.diff() >= 0).all()
    assert set(found.tolist()) == set(range(n_buckets // 2))
    ahead = T5(1, n_buckets, max_distance).buckets(torch.arange(1, 4 * max_distance))
    exactly(ahead, found[1:] + n_buckets // 2)


def test_a_decoder_has_one_bucket_for_all_that_is_ahead():
    found = T5(1, sees="past").buckets(torch.arange(0, 99))
    exactly(found, torch.zeros_like(found))


def test_bias_is_the_number_of_the_bucket_for_each_head():
    position = make_position("t5", n_buckets=8, max_distance=20)
    at_q, at_k = torch.tensor([[4, 0, 30]]), torch.tensor([[0, 3, 4, 5, 9, 60]])
    bias = position.bias(noise(B, H, 3, 5, seed=1), noise(B, H, 6, 5, seed=2), at_q, at_k)
    for i, left in enumerate(at_q[0]):
        for j, right in enumerate(at_k[0]):
            exactly(bias[0, :, i, j], position.table[bucket(int(right - left), 8, 20, "both")])


@pytest.mark.parametrize(("n_buckets", "sees"), [(7, "both"), (2, "both"), (0, "both"), (1, "past")])
def test_too_few_or_odd_buckets_are_refused(n_buckets, sees):
    with pytest.raises(ValueError, match=f"n_buckets must be even and give each direction 2 or more, got {n_buckets}"):
        T5(H, n_buckets, sees=sees)


def test_a_largest_distance_among_the_near_is_refused():
    with pytest.raises(ValueError, match="max_distance must exceed the 8 near buckets, got 8"):
        T5(H, 32, max_distance=8)


def test_an_unknown_direction_is_refused():
    with pytest.raises(ValueError, match="unknown direction 'pasts': did you mean 'past'\\? valid are both, past"):
        T5(H, sees="pasts")
