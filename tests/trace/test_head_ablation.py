"""A head that is switched off is a head that was taken out of the weights by hand."""

from copy import deepcopy

import pytest
import torch

from regard.batch import make_batch
from regard.model.multihead import merge_heads
from regard.search.scoring import token_costs
from regard.trace.head_ablation import find_heads, plain_copy, zero_head
from tests.trace.makers import MODELS, make_model

BATCH = make_batch([[5, 6, 7, 8], [7, 5]], [[8, 9, 10], [5]])


def without(model, kind, layer, head):
    """Takes a head out of a copy of a model: what reads its output reads nothing any more."""
    model = deepcopy(model)
    if kind == "cross" and hasattr(model, "mix"):
        model.mix.weight.data[:, model.decoder.width :] = 0
        model.decoder.cells[0].weight_ih.data[:, model.decoder.d_word :] = 0
        return model
    stack = model.encoder if kind == "encoder" else model.decoder
    heads = stack.layers[layer].cross_attention if kind == "cross" else stack.layers[layer].attention
    width = heads.w_o.in_features // heads.n_heads
    heads.w_o.weight.data[:, head * width : (head + 1) * width] = 0
    return model


def same(one, other):
    """Tells whether two models have the very same parameters."""
    one, other = one.state_dict(), other.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("family", "scheme"), MODELS)
def test_switching_off_is_removing_from_the_weights(family, scheme):
    model = make_model(family, scheme)
    own, whole = plain_copy(model), token_costs(model, BATCH)
    for place in find_heads(own):
        for head in range(place.n_heads):
            removed = without(model, place.kind, place.layer, head)
            with zero_head(place.read_by[head]):
                assert same(own, removed) and not same(own, model)
                off = token_costs(own, BATCH)
            assert same(own, model)
            torch.testing.assert_close(off, token_costs(removed, BATCH))
            assert not torch.equal(off, whole)


@pytest.mark.parametrize("scheme", ["sinusoidal", "shaw with values"])
def test_it_is_as_if_the_head_had_mixed_zeros(scheme):
    model = make_model(scheme=scheme)
    own = plain_copy(model)
    (place,) = (place for place in find_heads(own) if place.kind == "cross")
    heads, seen = model.decoder.layers[0].cross_attention, []

    def zeroed(module, args):
        seen.append(args[0].shape)
        mixed = args[0].unflatten(-1, (2, -1)).transpose(1, 2).clone()
        mixed[:, 1] = 0
        return (merge_heads(mixed),)

    heads.w_o.register_forward_pre_hook(zeroed)
    with zero_head(place.read_by[1]):
        torch.testing.assert_close(token_costs(own, BATCH), token_costs(model, BATCH))
    assert len(seen) == 1


def test_a_head_is_on_again_after_an_error():
    own = plain_copy(make_model())
    before = deepcopy(own)
    for place in find_heads(own):
        with pytest.raises(RuntimeError, match="in between"), zero_head(place.read_by[0]):
            assert not place.read_by[0][0].any()
            raise RuntimeError("in between")
    assert same(own, before)


def test_padding_costs_nothing_and_all_else_is_the_log_probability():
    model = make_model()
    costs, logits = token_costs(model, BATCH), model(BATCH).detach()
    expected = -logits.log_softmax(-1).gather(-1, BATCH.tgt.labels[..., None])[..., 0]
    torch.testing.assert_close(costs, expected * BATCH.tgt.token_mask)
    assert (costs[~BATCH.tgt.token_mask] == 0).all()
