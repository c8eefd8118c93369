"""Splitting and merging heads.

The multi-head layer against PyTorch's, against loops over heads, and in its three uses.
"""

import pytest
import torch
from torch import nn

from regard.attention import Additive, ScaledDot
from regard.build import build_heads
from regard.config import HeadsSettings, PartSettings
from regard.mask import Mask, allow, causal, padding, padding_both
from regard.model import MultiHeadAttention
from regard.model.multihead import merge_heads, split_heads
from regard.position import NoPosition, Rotary, Shaw
from tests.parts import B, E, H, K, Q, exactly, gradients, leaves, noise


def test_each_head_gets_its_own_features_side_by_side():
    x = noise(B, Q, H * E, seed=1)
    for h in range(H):
        exactly(split_heads(x, H)[:, h], x[..., h * E : (h + 1) * E])


def test_merging_undoes_splitting():
    x = noise(B, Q, H * E, seed=1)
    exactly(merge_heads(split_heads(x, H)), x)


MULTIHEAD_H, MULTIHEAD_E = 3, 7
D, D_KEY, D_VALUE = MULTIHEAD_H * MULTIHEAD_E, 11, 13
AT_Q, AT_K = torch.arange(Q)[None], torch.arange(K)[None]


def make_layer(attention=None, position=None, d_inputs=(D, D_KEY, D_VALUE), bias=True, n_heads=MULTIHEAD_H):
    torch.manual_seed(17)
    attention, position = attention or ScaledDot(), position or NoPosition()
    layer = MultiHeadAttention(attention, position, D, n_heads, d_inputs, bias).double()
    with torch.no_grad():
        for projection in (layer.w_q, layer.w_k, layer.w_v, layer.w_o):
            if projection.bias is not None:
                projection.bias.normal_()
    return layer


def make_inputs(d_inputs=(D, D_KEY, D_VALUE), n_queries=Q, n_keys=K):
    lengths = (n_queries, n_keys, n_keys)
    return [noise(B, n, d, seed=seed) for seed, (n, d) in enumerate(zip(lengths, d_inputs, strict=True))]


def like_torch(layer, d_inputs) -> nn.MultiheadAttention:
    """Copies our weights into PyTorch's layer."""
    _, d_key, d_value = d_inputs
    bias = layer.w_o.bias is not None
    theirs = nn.MultiheadAttention(
        D, MULTIHEAD_H, bias=bias, kdim=d_key, vdim=d_value, batch_first=True, dtype=torch.float64
    )
    weights = [w.weight for w in (layer.w_q, layer.w_k, layer.w_v)]
    with torch.no_grad():
        if d_inputs == (D, D, D):
            theirs.in_proj_weight.copy_(torch.cat(weights))
        else:
            for name, weight in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), weights, strict=True):
                getattr(theirs, name).copy_(weight)
        theirs.out_proj.weight.copy_(layer.w_o.weight)
        if bias:
            theirs.in_proj_bias.copy_(torch.cat([w.bias for w in (layer.w_q, layer.w_k, layer.w_v)]))
            theirs.out_proj.bias.copy_(layer.w_o.bias)
    return theirs


LENGTHS = torch.tensor([4, 7])
PADDED = torch.arange(K) >= LENGTHS[:, None]
FUTURE = torch.ones(Q, K, dtype=torch.bool).triu(1)
THEIR_MASKS = {
    "everything": (Mask(), {}),
    "key padding": (padding(LENGTHS, K), {"key_padding_mask": PADDED}),
    "causal": (causal(), {"attn_mask": FUTURE}),
    "causal, key padding": (causal() & padding(LENGTHS, K), {"attn_mask": FUTURE, "key_padding_mask": PADDED}),
}


@pytest.mark.parametrize("kind", THEIR_MASKS)
@pytest.mark.parametrize("d_inputs", [(D, D, D), (D, D_KEY, D_VALUE)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_pytorch_in_value_and_gradient(kind, d_inputs, bias):
    mask, their_mask = THEIR_MASKS[kind]
    layer, inputs = make_layer(d_inputs=d_inputs, bias=bias), leaves(make_inputs(d_inputs))
    theirs, _ = like_torch(layer, d_inputs)(*inputs, need_weights=False, **their_mask)
    ours = layer(*inputs, AT_Q, AT_K, mask)
    torch.testing.assert_close(ours, theirs)
    for a, b in zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True):
        torch.testing.assert_close(a, b)


def test_looking_does_not_change_the_answer_even_for_an_empty_row():
    # nn.MultiheadAttention gives NaN in such a row as soon as its weights are asked for (PyTorch 2.13).
    layer, inputs, mask = make_layer(), make_inputs(), padding([0, K], K)
    before = layer(*inputs, AT_Q, AT_K, mask)
    q, k = (
        w(x).unflatten(-1, (MULTIHEAD_H, MULTIHEAD_E)).transpose(1, 2)
        for w, x in ((layer.w_q, inputs[0]), (layer.w_k, inputs[1]))
    )
    weights = layer.attention.weights(q, k, mask)
    exactly(weights[0], torch.zeros(MULTIHEAD_H, Q, K, dtype=torch.float64))
    torch.testing.assert_close(weights[1].sum(dim=-1), torch.ones(MULTIHEAD_H, Q, dtype=torch.float64))
    exactly(layer(*inputs, AT_Q, AT_K, mask), before)
    exactly(before[0], layer.w_o.bias.expand(Q, D))


def test_heads_work_side_by_side():
    layer, (queries, keys, values) = make_layer(), make_inputs()
    heads = []
    for h in range(MULTIHEAD_H):
        part = slice(h * MULTIHEAD_E, (h + 1) * MULTIHEAD_E)
        q, k, v = (
            x @ w.weight[part].T + w.bias[part]
            for x, w in ((queries, layer.w_q), (keys, layer.w_k), (values, layer.w_v))
        )
        heads.append((q @ k.mT / MULTIHEAD_E**0.5).softmax(dim=-1) @ v)
    expected = layer.w_o(torch.cat(heads, dim=-1))
    torch.testing.assert_close(layer(queries, keys, values, AT_Q, AT_K), expected)


def relative(table, max_distance):
    """Builds a(r − l) for every pair, (Q, K, E)."""
    places = (AT_K[0][None] - AT_Q[0][:, None]).tolist()
    return torch.stack(
        [torch.stack([table[max(-max_distance, min(max_distance, d)) + max_distance] for d in row]) for row in places]
    )


@pytest.mark.parametrize("max_distance", [2, 16])
@pytest.mark.parametrize("mask", [Mask(), causal(), padding([0, 5], K)], ids=["everything", "causal", "padding"])
def test_shaw_equals_keys_and_values_with_relative_vectors_added(max_distance, mask):
    position = Shaw(MULTIHEAD_E, max_distance, values=True)
    layer, inputs = make_layer(position=position), leaves(make_inputs())
    q, k, v = (
        w(x).unflatten(-1, (MULTIHEAD_H, MULTIHEAD_E)).transpose(1, 2)
        for w, x in zip((layer.w_q, layer.w_k, layer.w_v), inputs, strict=True)
    )
    keys = k[:, :, None] + relative(position.keys, max_distance)  # (B, H, Q, K, E)
    values = v[:, :, None] + relative(position.values, max_distance)
    scores = torch.einsum("bhqe,bhqke->bhqk", q, keys) / MULTIHEAD_E**0.5
    allowed = mask.tile(range(Q), range(K), torch.device("cpu"))
    allowed = torch.ones(1, 1, Q, K, dtype=torch.bool) if allowed is None else allowed
    weights = scores.masked_fill(~allowed, -1e300).softmax(dim=-1) * allowed
    expected = layer.w_o(torch.einsum("bhqk,bhqke->bhqe", weights, values).transpose(1, 2).flatten(2))
    found = layer(*inputs, AT_Q, AT_K, mask)
    torch.testing.assert_close(found, expected)
    wanted = [*inputs, position.keys, position.values]
    for a, b in zip(gradients(found, wanted), gradients(expected, wanted), strict=True):
        torch.testing.assert_close(a, b)


POSITIONS = {"none": NoPosition, "rotary": Rotary, "shaw": lambda: Shaw(MULTIHEAD_E, 2, values=True)}


@pytest.mark.parametrize("name", POSITIONS)
def test_step_by_step_with_a_cache_equals_all_at_once(name):
    layer, x = make_layer(position=POSITIONS[name](), d_inputs=(D, D, D)), noise(B, K, D, seed=1)
    together = layer(x, x, x, AT_K, AT_K, causal())
    for t in range(K):
        seen = x[:, : t + 1]
        step = layer(x[:, [t]], seen, seen, AT_K[:, [t]], AT_K[:, : t + 1], causal(offset=t))
        torch.testing.assert_close(step, together[:, [t]])


def test_encoder_padding_is_not_seen_and_gives_nothing():
    layer, x = make_layer(d_inputs=(D, D, D)), noise(B, K, D, seed=1)
    out = layer(x, x, x, AT_K, AT_K, padding_both([4, 6], K))
    alone = layer(x[:1, :4], x[:1, :4], x[:1, :4], AT_K[:, :4], AT_K[:, :4])
    torch.testing.assert_close(out[:1, :4], alone)
    exactly(out[0, 4:], layer.w_o.bias.expand(3, D))


def test_cross_attention_takes_keys_and_values_from_elsewhere():
    layer, (queries, keys, values) = make_layer(), make_inputs()
    mask = allow(torch.arange(K).expand(Q, K) == 3)  # everybody looks at the fourth token
    expected = layer.w_o(layer.w_v(values[:, [3]])).expand(B, Q, D)
    torch.testing.assert_close(layer(queries, keys, values, AT_Q, AT_K, mask), expected)


def test_dropout_acts_in_training_alone_on_values_and_relative_values():
    layer = make_layer(ScaledDot(dropout=0.5), Shaw(MULTIHEAD_E, 2, values=True))
    inputs = make_inputs()
    plain = make_layer(position=layer.position)(*inputs, AT_Q, AT_K)
    torch.manual_seed(1)
    assert not layer(*inputs, AT_Q, AT_K).equal(plain)
    torch.testing.assert_close(layer.eval()(*inputs, AT_Q, AT_K), plain)


def test_relative_values_are_dropped_with_the_mean_kept():
    n = 1009
    position = Shaw(MULTIHEAD_E, 2, values=True)
    layer, plain = make_layer(ScaledDot(dropout=0.3), position), make_layer(position=position)
    inputs = [x[:1].expand(n, -1, -1) for x in make_inputs()]
    torch.manual_seed(1)
    drawn = layer(*inputs, AT_Q, AT_K).mean(dim=0)
    torch.testing.assert_close(drawn, plain(*(x[:1] for x in inputs), AT_Q, AT_K)[0], rtol=0, atol=0.15)


def test_parameters_are_four_projections():
    layer = MultiHeadAttention(ScaledDot(), NoPosition(), D, MULTIHEAD_H, bias=False)
    assert sum(p.numel() for p in layer.parameters()) == 4 * D * D


def test_every_parameter_learns():
    layer, inputs = (
        make_layer(Additive(MULTIHEAD_H, MULTIHEAD_E, MULTIHEAD_E), Shaw(MULTIHEAD_E, 3, values=True)),
        make_inputs(),
    )
    layer(*inputs, AT_Q, AT_K, causal()).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((D, 0), "n_heads must be 1 or more, got 0"),
        ((D, 4), "d_model must be divisible by n_heads, got 21 and 4"),
        ((0, 3), "d_model must be divisible by n_heads, got 0 and 3"),
        ((D, MULTIHEAD_H, (D, 0, D)), "d_query, d_key and d_value must be 1 or more, got 0"),
    ],
)
def test_sizes_that_no_layer_can_have_are_refused(sizes, said):
    with pytest.raises(ValueError, match=said):
        MultiHeadAttention(ScaledDot(), NoPosition(), *sizes)


@pytest.mark.parametrize(("which", "width"), [(0, D), (1, D_KEY), (2, D_VALUE)], ids=["queries", "keys", "values"])
def test_inputs_of_another_width_are_refused(which, width):
    layer, inputs = make_layer(), make_inputs()
    inputs[which] = inputs[which][..., : width - 1]
    with pytest.raises(ValueError, match=f"{width}.* got .*{width - 1}"):
        layer(*inputs, AT_Q, AT_K)


def test_an_attention_made_for_other_heads_is_refused():
    layer, inputs = make_layer(Additive(2, MULTIHEAD_E, MULTIHEAD_E)), make_inputs()
    with pytest.raises(ValueError, match=r"\b2\b"):
        layer(*inputs, AT_Q, AT_K)


def test_shaws_values_are_dropped_by_the_mask_of_the_weights():
    """Values of keys are all e₀ and those of distances e₁: both features are the sum of the weights that are left."""
    torch.manual_seed(1)
    parts = PartSettings("scaled_dot", {"dropout": 0.5}), PartSettings("shaw", {"values": True})
    layer = build_heads(HeadsSettings(d_model=4, n_heads=1, attention=parts[0], position=parts[1])).double().train()
    with torch.no_grad():
        layer.w_v.weight.zero_()
        layer.w_v.bias.copy_(torch.eye(4)[0])
        layer.position.values.copy_(torch.eye(4)[1].expand_as(layer.position.values))
        layer.w_o.weight.copy_(torch.eye(4))
        layer.w_o.bias.zero_()
    x, places = torch.randn(2, 5, 4, dtype=torch.float64), torch.arange(5)[None]
    out = layer(x, x, x, places, places)
    torch.testing.assert_close(out[..., 0], out[..., 1])
    assert (out[..., 0] - 1).abs().max() > 0.1, "nothing was dropped"
