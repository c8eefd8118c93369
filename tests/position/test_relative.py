"""ALiBi's slopes as its paper prints them, and its straight lines.

Difference codes: the fast bias against codes of differences literally built.
Rotary positions against complex numbers.
Learned relative keys and values against the (Q, K, E) construction of the paper.
T5's buckets against whole-number arithmetic, and its table.
"""

import math

import numpy as np
import pytest
import torch

from regard.position import T5, ALiBi, Difference, HalfWave, Index, Rotary, Shaw
from regard.position.contract import offsets
from regard.position.relative import head_slopes
from tests.parts import B, E, H, K, Q, exactly, gradients, make_position, noise


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


@pytest.mark.parametrize("width", [1, 2, 7, 8])
@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("code", ["sinusoidal", "half_wave", "index"])
def test_bias_equals_the_product_with_the_code_of_the_difference(width, scale, code):
    position = Difference(width, base=500.0, scale=scale, code=code, max_len=1000)
    q, k = noise(B, H, Q, width, seed=1), noise(B, H, K, width, seed=2)
    at_q, at_k = torch.tensor([[0, 4, 9, 2, 700]]), torch.tensor([[3, 0, 1, 8, 2, 900, 5]])
    codes = position.code(at_q[:, :, None] - at_k[:, None, :], width)  # (1, Q, K, E)
    expected = torch.einsum("bhqe,xqke->bhqk", q, codes) * (width**-0.5 if scale is None else scale)
    torch.testing.assert_close(position.bias(q, k, at_q, at_k), expected)


def test_the_code_of_a_difference_is_sinusoidal_for_either_sign():
    width, differences = 5, [-7, 0, 3]
    expected = [
        [(math.cos if i % 2 else math.sin)(d / 10000 ** (2 * (i // 2) / width)) for i in range(width)]
        for d in differences
    ]
    found = Difference(width).code(torch.tensor(differences), width)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_the_code_of_a_difference_is_turned_back_by_the_other_sign():
    found = Difference(4).code(torch.tensor([6, -6]), 4)
    exactly(found[0, 1::2], found[1, 1::2])
    exactly(found[0, ::2], -found[1, ::2])


@pytest.mark.parametrize(("code", "absolute"), [("half_wave", HalfWave(5, max_len=30)), ("index", Index(5))])
def test_the_code_of_a_difference_is_that_of_the_position_as_far_from_0(code, absolute):
    ahead = torch.tensor([[0, 3, 17]])
    position = Difference(5, code=code, max_len=30)
    torch.testing.assert_close(position.code(ahead, 5), absolute.codes(ahead))
    behind = position.code(-ahead, 5)
    exactly(behind[..., ::2], -position.code(ahead, 5)[..., ::2])  # sines and numbers change their sign


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"code": "learned"}, "code 'learned' has no row for it: use position 'shaw'"),
        ({"code": "normalised"}, "code 'normalised' divides by the length"),
        ({"code": "halfwave"}, "unknown code 'halfwave': did you mean 'half_wave'"),
        ({"code": "half_wave", "max_len": 0}, "max_len must be 1 or more positions, got 0"),
    ],
)
def test_a_code_that_no_difference_has_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Difference(8, **given)


def test_half_waves_of_differences_end_where_they_would_repeat():
    position, x = Difference(4, code="half_wave", max_len=7), noise(1, 1, 1, 4, seed=0)
    assert position.bias(x, x, torch.tensor([[6]]), torch.tensor([[0]])).isfinite().all()
    with pytest.raises(ValueError, match="k_positions must be below 7, the end of the table, got 7"):
        position.bias(x, x, torch.tensor([[0]]), torch.tensor([[7]]))


@pytest.mark.parametrize("code", ["sinusoidal", "half_wave", "index"])
def test_far_places_keep_the_bias_of_their_distance_in_float32(code):
    q, k = noise(1, 1, 1, 8, seed=1).float(), noise(1, 1, 1, 8, seed=2).float()
    near, far = (
        Difference(8, code=code, max_len=2 * 10**6).bias(q, k, torch.tensor([[at]]), torch.tensor([[at + 5]]))
        for at in (0, 10**6)
    )
    torch.testing.assert_close(far, near, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
@pytest.mark.parametrize("base", [10000.0, 50.0])
def test_pairs_turn_as_complex_numbers(width, base):
    q, places = noise(B, H, Q, width, seed=1), torch.tensor([[0, 3, 1, 500, 12]])
    even = width // 2 * 2
    expected = q.clone().numpy()
    for i in range(0, even, 2):
        turn = np.exp(1j * places.numpy() * base ** (-i / even))
        turned = (expected[..., i] + 1j * expected[..., i + 1]) * turn[:, None]
        expected[..., i], expected[..., i + 1] = turned.real, turned.imag
    torch.testing.assert_close(Rotary(base).rotate(q, places), torch.from_numpy(expected))


def test_the_last_feature_of_an_odd_width_stays():
    q = noise(B, H, Q, 7, seed=1)
    exactly(Rotary().rotate(q, torch.arange(Q)[None])[..., -1], q[..., -1])


def test_far_places_keep_the_score_of_their_distance_in_float32():
    q, k = noise(1, 1, 1, 8, seed=1).float(), noise(1, 1, 1, 8, seed=2).float()

    def score(at):
        return Rotary().rotate(q, torch.tensor([[at]])) @ Rotary().rotate(k, torch.tensor([[at + 5]])).mT

    torch.testing.assert_close(score(10**6), score(0), rtol=1e-5, atol=1e-5)


AT_Q, AT_K = torch.tensor([[0, 4, 9, 2, 30]]), torch.tensor([[3, 0, 1, 8, 2, 60, 5]])


def relative(table: torch.Tensor, max_distance: int, at_q=AT_Q, at_k=AT_K) -> torch.Tensor:
    """Builds a(r − l) for every pair, (1, Q, K, E)."""
    rows = [
        [table[max(-max_distance, min(max_distance, int(right - left))) + max_distance] for right in at_k[0]]
        for left in at_q[0]
    ]
    return torch.stack([torch.stack(row) for row in rows])[None]


@pytest.mark.parametrize("max_distance", [1, 3, 16])
@pytest.mark.parametrize("scale", [None, 1.0])
def test_bias_equals_the_naive_construction(max_distance, scale):
    position = make_position("shaw", max_distance=max_distance, scale=scale)
    q, k = noise(B, H, Q, E, seed=1), noise(B, H, K, E, seed=2)
    vectors = relative(position.keys, max_distance)
    expected = torch.einsum("bhqe,xqke->bhqk", q, vectors) * (E**-0.5 if scale is None else scale)
    found = position.bias(q, k, AT_Q, AT_K)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(gradients(out, [position.keys])[0] for out in (found, expected)))


@pytest.mark.parametrize("max_distance", [1, 3, 16])
def test_pooled_values_equal_the_naive_construction(max_distance):
    position = make_position("shaw", max_distance=max_distance, values=True)
    weights = noise(B, H, Q, K, seed=1).softmax(dim=-1).requires_grad_()
    found = position.pool(lambda: weights, AT_Q, AT_K)
    expected = torch.einsum("bhqk,xqke->bhqe", weights, relative(position.values, max_distance))
    torch.testing.assert_close(found, expected)
    wanted = [weights, position.values]
    for quick, slow in zip(gradients(found, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(quick, slow)


def test_without_values_nobody_builds_the_weights():
    def weights():
        raise AssertionError("the weights were asked for")

    assert make_position("shaw").pool(weights, AT_Q, AT_K) is None


def test_offsets_beyond_the_largest_share_the_last_vector():
    rows = make_position("shaw", max_distance=2).rows(torch.tensor([[10]]), torch.tensor([[0, 8, 9, 10, 11, 12, 99]]))
    exactly(rows, torch.tensor([[[0, 0, 1, 2, 3, 4, 4]]]))


@pytest.mark.parametrize("max_distance", [0, -4])
def test_no_distance_is_refused(max_distance):
    with pytest.raises(ValueError, match=f"max_distance must be 1 or more, got {max_distance}"):
        Shaw(E, max_distance)


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
