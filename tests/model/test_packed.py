"""Packed linear maps against the plain one."""

import pytest
import torch
from torch.testing import assert_close

from regard.model.packed import Int8Linear, TransposedLinear, replace_linears, restore_linears

from ..parts import noise


@pytest.mark.parametrize("bias", [True, False])
def test_transposed_equals_linear(bias):
    weight, b, x = noise(7, 5, seed=0), noise(7, seed=1) if bias else None, noise(3, 5, seed=2)
    assert_close(TransposedLinear(weight, b)(x), torch.nn.functional.linear(x, weight, b))


@pytest.mark.parametrize("bias", [True, False])
def test_int8_rounds_each_output_by_its_own_scale(bias):
    weight = noise(7, 64, seed=0).float()
    weight[3] *= 1000  # one loud output must not cost the others their digits
    b, x = noise(7, seed=1).float() if bias else None, noise(5, 64, seed=2).float()
    exact, near = torch.nn.functional.linear(x, weight, b), Int8Linear(weight, b)(x)
    error = (exact - near).abs().amax(dim=0) / exact.std(dim=0)
    assert float(error.max()) < 0.06


def test_int8_of_zeros_is_zeros():
    assert_close(Int8Linear(torch.zeros(3, 4), None)(torch.randn(2, 4)), torch.zeros(2, 3))


@pytest.mark.parametrize("bias", [True, False])
def test_restored_maps_are_those_that_the_8_bit_numbers_stand_for(bias):
    """Rounded once, they are their own rounding."""
    torch.manual_seed(0)
    exact = torch.nn.Sequential(torch.nn.Linear(6, 5, bias), torch.nn.Sequential(torch.nn.Linear(5, 4, bias)))
    exact.requires_grad_(False)
    scales = [layer.weight.abs().amax(dim=1, keepdim=True) / 127 for layer in (exact[0], exact[1][0])]
    expected = [(layer.weight / s).round() * s for layer, s in zip((exact[0], exact[1][0]), scales, strict=True)]
    restored = restore_linears(replace_linears(exact))
    for layer, weight in zip((restored[0], restored[1][0]), expected, strict=True):
        assert_close(layer.weight, weight)
        assert type(layer) is torch.nn.Linear and (layer.bias is not None) == bias
