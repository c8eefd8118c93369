"""Any `nn.MultiheadAttention` in anybody's module is looked at as ours are."""

import pytest
import torch
from torch import nn

from regard.trace import watch

B, Q, K, D, H = 2, 3, 5, 8, 2
FORBIDDEN = torch.tensor([[False, True, False, False, True]] * Q)
OPTIONS = {
    "plain": {},
    "without bias": {"bias": False},
    "other widths": {"kdim": 7, "vdim": 6},
    "a learned key": {"add_bias_kv": True},
    "a key of zeros": {"add_zero_attn": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True},
    "batch second": {"batch_first": False},
}
MASKS = {
    "none": {},
    "a rule": {"attn_mask": FORBIDDEN},
    "a rule for each head": {"attn_mask": torch.stack([FORBIDDEN, ~FORBIDDEN, ~FORBIDDEN, FORBIDDEN])},
    "numbers": {"attn_mask": torch.randn(Q, K, generator=torch.Generator().manual_seed(1))},
    "padding": {"key_padding_mask": torch.tensor([[False] * 5, [False, False, True, True, True]])},
    "padding and a rule": {
        "key_padding_mask": torch.tensor([[False] * 5, [False, False, False, True, True]]),
        "attn_mask": FORBIDDEN,
    },
}


def make_module(**options):
    torch.manual_seed(2)
    module = nn.MultiheadAttention(D, H, **({"batch_first": True} | options)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("option", OPTIONS)
@torch.no_grad()
def test_weights_are_those_that_the_module_itself_can_give(option, mask):
    module = make_module(**OPTIONS[option])
    widths = (Q, D), (K, OPTIONS[option].get("kdim", D)), (K, OPTIONS[option].get("vdim", D))
    inputs = [torch.randn(B, n, width) for n, width in widths]
    inputs = inputs if module.batch_first else [x.transpose(0, 1) for x in inputs]
    with watch(module) as seen:
        module(*inputs, **MASKS[mask], need_weights=False)
    _, expected = module(*inputs, **MASKS[mask], average_attn_weights=False)
    for sequence in range(B):
        (look,) = seen.looks(sequence)
        torch.testing.assert_close(look.weights(), expected[sequence])
        assert look.error() < 1e-5
        assert look.kind == "cross" and look.sizes == tuple(expected.shape[1:])


@torch.no_grad()
def test_a_call_without_a_batch_is_a_batch_of_one():
    module, x = make_module(), torch.randn(Q, D)
    with watch(module) as seen:
        module(x, x, x)
    (look,) = seen.looks()
    assert look.kind == "encoder" and look.error() < 1e-5
    with pytest.raises(ValueError, match=r"sequence must lie in 0 … 0, got 1"):
        seen.looks(1)


class Mine(nn.Module):
    """What a user may have: PyTorch's own stacks inside a module."""

    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(D, H, 2, 1, 11, batch_first=True)

    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1])
        return self.model(src, tgt, tgt_mask=mask, tgt_is_causal=True)


@torch.no_grad()
def test_a_user_s_module_becomes_a_trace_past_the_fused_layers():
    torch.manual_seed(4)
    module = Mine().eval()
    src, tgt = torch.randn(1, K, D), torch.randn(1, Q, D)
    assert torch.backends.mha.get_fastpath_enabled()
    with watch(module) as seen:
        assert not torch.backends.mha.get_fastpath_enabled()
        module(src, tgt)
    assert torch.backends.mha.get_fastpath_enabled()
    assert seen.names == [
        *(f"model.encoder.layers.{n}.self_attn" for n in range(2)),
        *(f"model.decoder.layers.0.{name}" for name in ("self_attn", "multihead_attn")),
    ]
    trace = seen.trace(list("abcde"), list("xyz"))
    assert [(look.kind, look.layer) for look in trace.looks] == [
        ("encoder", 0), ("encoder", 1), ("decoder", 0), ("cross", 0),
    ]  # fmt: skip
    assert trace.check().weights < 1e-5 and trace.check().log_prob != trace.check().log_prob
    assert not trace.decoder[0].weights().triu(1).any(), "the future is hidden"
    assert trace.encoder[0].terms().names == ("score",)
    assert trace.to_hf().cross_attentions[0].shape == (1, H, Q, K)
    assert trace.source == tuple("abcde") and trace.read == tuple("xyz")
    with pytest.raises(ValueError, match=r"one token for each query and key of .*, got 4 and 4 tokens"):
        seen.trace(list("abcd"), list("xyz"))


def test_nothing_is_left_behind():
    module = make_module()
    with pytest.raises(ValueError, match="stop"), watch(module):
        raise ValueError("stop")
    assert torch.backends.mha.get_fastpath_enabled()
    assert not module._forward_hooks


@torch.no_grad()
def test_a_query_that_may_look_at_nothing_has_zeros():
    """PyTorch gives no numbers there."""
    module, x = make_module(), torch.randn(1, Q, D)
    nobody = torch.zeros(Q, Q, dtype=torch.bool)
    nobody[1] = True
    with watch(module) as seen:
        module(x, x, x, attn_mask=nobody)
    weights = seen.looks()[0].weights()
    assert not weights[:, 1].any()
    torch.testing.assert_close(weights[:, 0].sum(-1), torch.ones(H))
