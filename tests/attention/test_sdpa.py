"""Which kernel runs: masks keep the form that stays fused."""

import pytest
import torch

from regard.attention import ATTENTION
from regard.attention.sdpa import prepare
from regard.mask import Mask, allow, causal, padding, padding_both, window
from tests.parts import B, H, exactly, make_attention, make_bias, make_inputs, noise

T = 7
STAY_FUSED = {
    "everything": Mask(),
    "causal": causal(),
    "causal, padding of both": padding_both([3, 7], T) & causal(),
    "padding": padding([3, 7], T),
    "padding per query": padding(torch.arange(B * T).reshape(B, T) % T, T),
    "causal after a cache": causal(offset=2),
    "window": window(2),
    "any": allow(torch.eye(T, dtype=torch.bool)),
}
FUSED = [name for name in ATTENTION if name != "additive"]


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.parametrize("kind", STAY_FUSED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_masks_stay_on_the_flash_kernel(name, kind, dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in make_inputs(name, T, T))
    attention = make_attention(name).to(dtype)
    assert attention.kernel(q, k, v, STAY_FUSED[kind]) == "flash"
    assert attention.kernel(q, k, v, STAY_FUSED[kind], noise(1, H, T, T, seed=1).to(dtype)) == "flash"


@pytest.mark.parametrize("name", FUSED)
def test_a_bias_that_wants_a_gradient_takes_the_materialised_kernel(name):
    bias = make_bias("full bias").requires_grad_()
    assert make_attention(name).kernel(*make_inputs(name), Mask(), bias) == "math"


@pytest.mark.parametrize("name", FUSED)
def test_dropout_on_the_cpu_takes_the_materialised_kernel(name):
    attention, inputs = make_attention(name, dropout=0.5), make_inputs(name)
    assert attention.kernel(*inputs) == "math"
    assert attention.eval().kernel(*inputs) == "flash"


def test_additive_attention_runs_in_blocks():
    assert make_attention("additive").kernel(*make_inputs("additive"), causal()) == "blocks"


@pytest.mark.parametrize("mask", [causal(), padding_both([3, 7], T) & causal(), causal() & padding_both([3, 7], T)])
def test_causal_self_attention_builds_no_mask(mask):
    call = prepare(*make_inputs("dot", T, T), mask, None)
    assert call.is_causal
    assert call.attn_mask is None


def test_a_single_query_after_a_cache_builds_no_causal_mask():
    call = prepare(*make_inputs("dot", 1, T), causal(offset=T - 1), None)
    assert call.attn_mask is None
    assert not call.is_causal


def test_no_kernel_sees_a_row_without_keys():
    call = prepare(*make_inputs("dot", T, T), padding([0, 3], T), None)
    assert call.attn_mask.any(dim=-1).all()
    exactly(call.empty.flatten(), torch.tensor([True, False]))


def test_lengths_for_keys_alone_are_not_taken_for_causal_alone():
    call = prepare(*make_inputs("dot", T, T), padding([3, 7], T) & causal(), None)
    assert not call.is_causal
    assert call.attn_mask.shape == (B, 1, T, T)
