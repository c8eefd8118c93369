"""Every pair of parts either runs as it is defined or is refused with its reason."""

import copy
import re

import pytest
import torch

from regard.attention import ATTENTION
from regard.build import NEEDS_HEADS, ON_TOKENS, REFUSED, assemble_heads, build_heads, build_part, refuse_meaningless
from regard.config import HeadsSettings, PartSettings
from regard.model.multihead import merge_heads, split_heads
from regard.position import POSITION, Rotary
from tests.parts import FLOATS, MASKS, B, E, H, K, Q, make_attention, make_inputs, make_position, noise

T, D_MODEL, N_HEADS = 5, 21, 3
NEAR = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 6e-2}
PAIRS = [(attention, position) for attention in ATTENTION for position in POSITION]


def make_layer(attention="scaled_dot", position="none", **changes):
    """Builds a layer from names of parts, or from parts with their options."""
    torch.manual_seed(13)
    attention, position = (PartSettings(part) if isinstance(part, str) else part for part in (attention, position))
    sizes = {"d_model": D_MODEL, "n_heads": N_HEADS} | changes
    settings = HeadsSettings(attention=attention, position=position, **sizes)
    if position.name in ON_TOKENS:  # as in a model, where the caller applies it to the tokens
        return assemble_heads(settings, build_part(POSITION, position, "position", {"width": D_MODEL}))
    return build_heads(settings)


@pytest.mark.parametrize("name", sorted(ON_TOKENS))
def test_a_position_that_acts_on_tokens_is_refused_in_a_layer(name):
    with pytest.raises(
        ValueError, match=f"position '{name}' acts on token vectors.*alibi, difference, rotary, shaw, t5"
    ):
        build_heads(HeadsSettings(D_MODEL, N_HEADS, position=PartSettings(name)))


def test_every_scheme_acts_somewhere():
    assert {"none"} | ON_TOKENS | NEEDS_HEADS == set(POSITION) and not ON_TOKENS & NEEDS_HEADS


def definition(layer, x, places):
    """Gives what the layer computes under a mask, in float64 from the projections it made."""
    q, k, v = (split_heads(w(x), N_HEADS) for w in (layer.w_q, layer.w_k, layer.w_v))
    q, k = (layer.position.rotate(part, places) for part in (q, k))
    bias = layer.position.bias(q, k, places, places)
    q, k, v, bias = (None if part is None else part.double() for part in (q, k, v, bias))
    exact = copy.deepcopy(layer).double()

    def under(mask):
        weights = exact.attention.weights(q, k, mask, bias)
        extra = exact.position.pool(lambda: weights, places, places)
        return exact.w_o(merge_heads(weights @ v if extra is None else weights @ v + extra))

    return under


@pytest.mark.parametrize("position", POSITION)
@pytest.mark.parametrize("attention", ATTENTION)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_pair_runs_as_defined_or_is_refused_with_its_reason(attention, position, dtype):
    if (attention, position) in REFUSED:
        with pytest.raises(ValueError, match=re.escape(REFUSED[attention, position])) as refusal:
            make_layer(attention, position)
        assert f"{position!r} has no meaning with {attention!r}" in str(refusal.value)
        return
    layer = make_layer(attention, position).to(dtype)
    places = layer.position.first_positions(T)
    x = layer.position.embed(noise(B, T, D_MODEL, seed=1).to(dtype), places)
    defined = definition(layer, x, places)
    for make_mask in MASKS.values():
        mask = make_mask(T, T)
        out = layer(x, x, x, places, places, mask)
        assert out.dtype == dtype
        torch.testing.assert_close(out.double(), defined(mask), rtol=NEAR[dtype], atol=NEAR[dtype])


@pytest.mark.parametrize("name", ATTENTION)
def test_rotary_is_refused_where_scores_would_not_depend_on_distance_alone(name):
    attention, (q, k, _) = make_attention(name), make_inputs(name)

    def scores(first):
        at_q, at_k = (torch.arange(first, first + n)[None] for n in (Q, K))
        return attention.scores(Rotary().rotate(q, at_q), Rotary().rotate(k, at_k))

    moved = (scores(5) - scores(0)).abs().max().item()
    assert (moved < 1e-9) == ((name, "rotary") not in REFUSED)


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("position", ["shaw", "difference"])
def test_relative_keys_are_refused_where_adding_them_to_keys_is_something_else(name, position):
    attention = build_part(
        ATTENTION, PartSettings(name), "attention", {"n_heads": H, "d_query": E, "d_key": E}
    ).double()
    scheme = make_position(position, scale=1.0 if name == "dot" else E**-0.5)
    q, k, at_q, at_k = (
        noise(B, H, Q, E, seed=1),
        noise(B, H, K, E, seed=2),
        torch.arange(Q)[None],
        torch.arange(K)[None],
    )
    distances = at_q[0][:, None] - at_k[0]  # (Q, K)
    vectors = scheme.code(distances, E) if position == "difference" else scheme.keys[scheme.rows(at_q, at_k)[0]]
    literal = torch.cat([attention.scores(q[:, :, [i]], k + vectors[i]) for i in range(Q)], dim=2)
    off = (attention.scores(q, k) + scheme.bias(q, k, at_q, at_k) - literal).abs().max().item()
    assert (off < 1e-9) == ((name, position) not in REFUSED)


def test_every_refused_pair_is_in_the_tables_and_some_pair_is_left_for_each_part():
    assert set(REFUSED) <= set(PAIRS)
    for position in POSITION:
        assert {attention for attention in ATTENTION if (attention, position) not in REFUSED}
    for attention in ATTENTION:
        assert {position for position in POSITION if (attention, position) not in REFUSED}


def test_a_refusal_names_the_partners_that_have_a_meaning():
    with pytest.raises(
        ValueError, match=r"'rotary' has no meaning with 'additive': .*; use dot or scaled_dot or gaussian$"
    ):
        refuse_meaningless("additive", "rotary")


@pytest.mark.parametrize("position", ["shaw", "difference"])
@pytest.mark.parametrize(("attention", "scale"), [("dot", 1.0), ("scaled_dot", 7**-0.5)])
def test_relative_keys_are_scaled_as_the_keys(attention, scale, position):
    assert make_layer(attention, position).position.scale == scale


def test_parts_get_the_sizes_of_the_layer():
    layer = make_layer("additive", "t5", d_query=11, d_key=13, d_value=17, bias=False)
    assert [w.in_features for w in (layer.w_q, layer.w_k, layer.w_v, layer.w_o)] == [11, 13, 17, D_MODEL]
    assert [w.bias for w in (layer.w_q, layer.w_k, layer.w_v, layer.w_o)] == [None] * 4
    assert layer.attention.w_q.shape == (N_HEADS, 7, 7)
    assert layer.position.table.shape == (32, N_HEADS)


def test_parts_get_their_options():
    layer = make_layer(PartSettings("dot", {"dropout": 0.25}), PartSettings("rotary", {"base": 500.0}))
    assert layer.attention.dropout == 0.25
    assert layer.position.base == 500.0


@pytest.mark.parametrize("bandwidth", ["fixed", "learned"])
def test_no_size_of_the_layer_is_taken_for_an_option(bandwidth):
    layer = make_layer(PartSettings("gaussian", {"bandwidth": bandwidth}))
    assert layer.attention.w.shape == (N_HEADS,)
    assert layer.attention.w.requires_grad == (bandwidth == "learned")


BAD_LAYERS = [
    ({"n_heads": 0}, "n_heads must be 1 or more, got 0"),
    ({"n_heads": -2}, "n_heads must be 1 or more, got -2"),
    ({"n_heads": 4}, "d_model must be divisible by n_heads, got 21 and 4"),
    ({"d_model": 0}, "d_model must be divisible by n_heads, got 0 and 3"),
    ({"d_model": -3}, "d_model must be divisible by n_heads, got -3 and 3"),
    ({"d_query": 0}, "d_query, d_key and d_value must be 1 or more, got 0"),
    ({"d_value": -7}, "d_query, d_key and d_value must be 1 or more, got -7"),
    (
        {"attention": PartSettings("dott")},
        "unknown attention 'dott': did you mean 'dot'\\? valid are dot, scaled_dot, ",
    ),
    (
        {"position": PartSettings("rotory")},
        "unknown position 'rotory': did you mean 'rotary'\\? valid are none, index, ",
    ),
    (
        {"attention": PartSettings("dot", {"droput": 0.1})},
        "unknown option of attention 'dot' 'droput': did you mean 'dropout'\\? valid are dropout",
    ),
    (
        {"position": PartSettings("rotary", {"max_len": 9})},
        "unknown option of position 'rotary' 'max_len': valid are base",
    ),
    ({"attention": PartSettings("dot", {"dropout": 1.0})}, r"dropout must lie in \[0, 1\), got 1.0"),
    ({"position": PartSettings("t5", {"n_buckets": 7})}, "n_buckets must be even .*, got 7"),
]


@pytest.mark.parametrize(("changes", "said"), BAD_LAYERS, ids=[said[:40] for _, said in BAD_LAYERS])
def test_layers_that_cannot_be_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        make_layer(**changes)


MISTYPED = [
    ("attention", PartSettings("dot", {"dropout": "a tenth"}), "a tenth"),
    ("attention", PartSettings("additive", {"hidden": 2.5}), "2.5"),
    ("attention", PartSettings("additive", {"hidden": True}), "True"),
    ("position", PartSettings("shaw", {"values": "no"}), "no"),
    ("position", PartSettings("rotary", {"base": "wide"}), "wide"),
    ("position", PartSettings("learned", {"max_len": 10.5}), "10.5"),
    ("position", PartSettings("t5", {"sees": 1}), "1"),
]


@pytest.mark.parametrize(("what", "part", "said"), MISTYPED, ids=[str(part) for _, part, _ in MISTYPED])
def test_mistyped_options_are_refused(what, part, said):
    with pytest.raises(ValueError, match=said):
        make_layer(**{what: part})


@pytest.mark.parametrize(("what", "table"), [("attention", ATTENTION), ("position", POSITION)])
def test_an_unknown_name_is_answered_with_all_valid_ones(what, table):
    with pytest.raises(ValueError, match=f"unknown {what} 'nothing like it': valid are {', '.join(table)}$"):
        build_part(table, PartSettings("nothing like it"), what, {})


def test_sizes_that_a_part_does_not_name_are_not_given():
    assert build_part(ATTENTION, PartSettings("dot"), "attention", {"n_heads": 3, "d_head": 7}).dropout == 0.0
