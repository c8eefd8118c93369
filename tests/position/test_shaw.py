"""Learned relative keys and values against the (Q, K, E) construction of the paper."""

import pytest
import torch

from regard.position import Shaw
from tests.parts import B, E, H, K, Q, exactly, gradients, make_position, noise

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
