"""Weights in fewer bytes: how far they may be off, and that rounding twice is rounding once.

8-bit linear layers against the plain one.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from regard.build import build_model
from regard.checkpoint import read_stored
from regard.checkpoint.weights import Form, copy_model, load_model, read_weights, unique_tensors, write_weights
from regard.config import ModelSettings, PartSettings
from regard.model.quantize import (
    Int8Linear,
    dequantize_linears,
    quantize,
    quantize_linears,
    quantize_rows,
)
from tests.parts import exactly, noise
from tests.train.tiny import trained_once

SIZES = {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 14, "n_heads": 2, "d_ff": 11}
MODELS = [
    ModelSettings(**SIZES),
    ModelSettings(**SIZES, norm="batch", position=PartSettings("shaw", {"max_distance": 5, "values": True})),
    ModelSettings(**SIZES, family="recurrent", attention=PartSettings("additive"), position=PartSettings("none")),
]


def rows(seed, magnitude, shape=(7, 11)):
    torch.manual_seed(seed)
    return torch.randn(shape) * magnitude


@given(seed=st.integers(0, 2**20), magnitude=st.sampled_from([1e-30, 1e-6, 0.02, 1.0, 3e4, 1e30]))
def test_rounding_errs_by_half_a_scale_at_most_and_twice_is_once(seed, magnitude):
    matrix = rows(seed, magnitude)
    whole, scales = quantize_rows(matrix)
    back = whole * scales[:, None]
    assert whole.abs().amax(dim=1).eq(127).all()
    assert ((back - matrix).abs() <= scales[:, None] * 0.5001).all()
    again, _ = quantize_rows(back)
    exactly(again, whole)


@given(seed=st.integers(0, 2**20))
def test_packing_what_was_restored_gives_the_same_whole_numbers(seed):
    """A model that was shipped in 8 bits and runs in 8 bits is rounded once, not twice."""
    whole, scales = quantize_rows(rows(seed, 0.05))
    weight, _ = torch.ops.quantized.linear_unpack(Int8Linear(whole * scales[:, None], None).packed)
    exactly(weight.int_repr(), whole)
    torch.testing.assert_close(weight.q_per_channel_scales().float(), scales, rtol=1e-6, atol=0)


def test_a_row_of_zeros_stays_one():
    matrix = torch.tensor([[0.0, 0.0], [1.0, -254.0]])
    whole, scales = quantize_rows(matrix)
    exactly(whole, torch.tensor([[0, 0], [0, -127]], dtype=torch.int8))  # half a scale rounds to even
    exactly(scales, torch.tensor([1.0, 2.0]))  # nothing is divided by 0
    exactly(whole * scales[:, None], torch.tensor([[0.0, 0.0], [0.0, -254.0]]))


@pytest.mark.parametrize("settings", MODELS, ids=["transformer", "shaw", "recurrent"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_every_model_comes_back_with_its_names_and_shapes(settings, precision, tmp_path):
    tensors = unique_tensors(build_model(settings, (23, 23)))
    write_weights(tmp_path, tensors, Form(precision))
    back = read_weights(tmp_path)
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        if tensor.dim() == 2 or precision == "bfloat16":
            near = {"float32": 0.0, "bfloat16": 2**-8, "int8": 0.5001 / 127}[precision]
            limit = tensor.abs().amax(dim=-1, keepdim=True) * near if tensor.dim() else tensor
            assert ((back[name] - tensor).abs() <= limit).all(), name
        else:
            exactly(back[name], tensor)


def test_an_unknown_precision_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="unknown precision 'int16': did you mean 'int8'"):
        quantize({}, "int16")


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_copy_says_its_precision_and_is_near(precision, tmp_path_factory, tmp_path):
    trained = trained_once(tmp_path_factory)
    copy_model(trained, tmp_path / "copy", Form(precision))
    assert read_stored(tmp_path / "copy").precision == precision
    one, other = (load_model(folder).model.state_dict() for folder in (trained, tmp_path / "copy"))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=2**-8, atol=float(tensor.abs().max()) / 250)


@pytest.mark.parametrize("bias", [True, False])
def test_int8_rounds_each_output_by_its_own_scale(bias):
    weight = noise(7, 64, seed=0).float()
    weight[3] *= 1000  # one loud output must not cost the others their digits
    b, x = noise(7, seed=1).float() if bias else None, noise(5, 64, seed=2).float()
    exact, near = torch.nn.functional.linear(x, weight, b), Int8Linear(weight, b)(x)
    error = (exact - near).abs().amax(dim=0) / exact.std(dim=0)
    assert float(error.max()) < 0.06


@pytest.mark.parametrize("bias", [True, False])
def test_int8_rounds_each_row_by_its_own_scale(bias):
    layer = Int8Linear(noise(7, 64, seed=0).float(), noise(7, seed=1).float() if bias else None)
    x = noise(5, 64, seed=2).float() * torch.tensor([1.0, 1000.0, 0.0, 0.001, 3.0])[:, None]
    alone = torch.cat([layer(row[None]) for row in x])
    assert_close(layer(x), alone, rtol=0.0, atol=0.0)
    assert_close(layer(x[None, :, None]), alone[None, :, None], rtol=0.0, atol=0.0)


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
    restored = dequantize_linears(quantize_linears(exact))
    for layer, weight in zip((restored[0], restored[1][0]), expected, strict=True):
        assert_close(layer.weight, weight)
        assert type(layer) is torch.nn.Linear and (layer.bias is not None) == bias
