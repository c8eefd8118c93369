"""A bias by offset is the bias itself."""

import pytest
import torch
from torch.testing import assert_close

from regard.position import POSITION, ByOffset
from tests.parts import B, E, H, make_position, noise

KNOWN = ["t5", "alibi", "shaw"]


def places():
    return torch.tensor([[4, 5, 6, 7, 300], [0, 1, 2, 2, 0]]), torch.arange(0, 200, 9)[None]


@pytest.mark.parametrize("name", KNOWN)
def test_written_out_it_is_the_bias_in_value_and_gradient(name):
    scheme, (q_places, k_places) = make_position(name), places()
    q, k = noise(B, H, 5, E, seed=1).requires_grad_(), noise(B, H, k_places.shape[1], E, seed=2)
    by_offset = scheme.by_offset(q, q_places, k_places)
    bias, written = scheme.bias(q, k, q_places, k_places), by_offset.written_out(q.dtype)
    assert_close(written.expand(B, -1, -1, -1), bias.expand(B, -1, -1, -1), rtol=1e-12, atol=1e-12)
    wanted = [*scheme.parameters(), *([q] if name == "shaw" else [])]
    if bias.requires_grad:
        ahead = noise(*bias.shape, seed=3)
        for one, other in zip(
            torch.autograd.grad((written * ahead).sum(), wanted),
            torch.autograd.grad((bias * ahead).sum(), wanted),
            strict=True,
        ):
            assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in POSITION if name not in KNOWN])
def test_other_schemes_know_none(name):
    scheme = make_position(name, width=12)
    q, at = noise(B, H, 3, 12, seed=1), torch.arange(3)[None]
    at = at if scheme.n_axes == 1 else at[..., None].expand(-1, -1, scheme.n_axes)
    assert scheme.by_offset(q, at, at) is None


@pytest.mark.parametrize("name", KNOWN)
def test_a_position_below_zero_is_refused(name):
    at, below = torch.arange(3)[None], torch.tensor([[0, -2, 1]])
    with pytest.raises(ValueError, match="k_positions must be 0 or more, got -2"):
        make_position(name).by_offset(noise(B, H, 3, E, seed=1), at, below)


def test_both_parts_add_up_and_offsets_beyond_the_reach_share_an_entry():
    at = torch.arange(4)[None]
    table = torch.tensor([10.0, 20.0, 30.0], dtype=torch.float64)[None, None, None]
    bias = ByOffset(at, at, table, torch.tensor([0.5], dtype=torch.float64))
    assert bias.reach == 1
    expected = [[20, 29.5, 29, 28.5], [9.5, 20, 29.5, 29], [9, 9.5, 20, 29.5], [8.5, 9, 9.5, 20]]
    assert_close(bias.written_out(torch.float64)[0, 0], torch.tensor(expected, dtype=torch.float64))
