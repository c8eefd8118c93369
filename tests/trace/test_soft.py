"""Weights of whole batches are those of each sentence by itself, and are merged as one would by hand."""

import pytest
import torch

from regard.batch import EOS, make_batch
from regard.trace.choice import Choice
from regard.trace.need import needs
from regard.trace.places import find_places, own_copy
from regard.trace.reading import Part, Reading
from regard.trace.replay import replay
from regard.trace.soft import soft_links
from regard.trace.weighing import show_weights

from .makers import MODELS, make_model

SRC = [[5, 6, 7, 8, 9], [7, 5], [10, 11, 12]]
TGT = [[8, 9], [5, 6, 7, 11], [12]]
READINGS = [
    Reading(Part(SRC[0], [0, 0, 1, 2, 2]), Part(TGT[0], [0, 1])),
    Reading(Part(SRC[1], [0, 0]), Part(TGT[1], [0, 1, 1, 1])),
    Reading(Part(SRC[2], [0, 1, 2]), Part(TGT[2], [0])),
]


@pytest.mark.parametrize(("family", "scheme"), MODELS)
def test_weights_of_a_batch_are_those_of_each_sentence(family, scheme):
    model = make_model(family, scheme)
    seen = {}

    def see(kind, layer, weights):
        seen[kind, layer] = weights

    show_weights(own_copy(model), make_batch(SRC, TGT), see)
    assert list(seen) == [(place.kind, place.layer) for place in find_places(model)]
    for row, (src, tgt) in enumerate(zip(SRC, TGT, strict=True)):
        for look in replay(model, src, [*tgt, EOS]).looks:
            _, Q, K = look.sizes
            torch.testing.assert_close(seen[look.kind, look.layer][row, :, :Q, :K], look.weights())
            assert not seen[look.kind, look.layer][row, :, :Q, K:].any()


def by_hand(weights, reading, at):
    """Adds the columns of each source joint, and averages the rows of each target joint."""
    shift = {"say": 0, "read": 1}[at]
    columns = [[n for n, owner in enumerate(reading.src.owners) if owner == joint] for joint in {*reading.src.owners}]
    owners = reading.tgt.owners
    rows = [[n + shift for n, owner in enumerate(owners) if owner == joint] for joint in {*owners}]
    by_column = torch.stack([weights[:, some].sum(1) for some in columns], dim=1)
    return torch.stack([by_column[some].mean(0) for some in rows])


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_pieces_are_merged_as_by_hand(family):
    layers = {"n_decoder_layers": 2} if family == "transformer" else {"n_heads": 1}
    model = make_model(family, "none", dtype=torch.float32, **layers)
    looks = [replay(model, src, [*tgt, EOS]).looks for src, tgt in zip(SRC, TGT, strict=True)]
    cross = [torch.stack([look.weights() for look in some if look.kind == "cross"]) for some in looks]  # (L, H, Q, K)
    choices = [Choice(0, 0, "say"), Choice(0, 0, "read"), Choice(0, None, "say"), Choice(None, None, "read")]
    choices += [Choice(1, 1, "read")] if family == "transformer" else []
    found = dict(soft_links(own_copy(model), READINGS, choices))
    assert sorted(found) == [0, 1, 2]
    for place, soft in found.items():
        for choice, shares in zip(choices, soft, strict=True):
            layers = cross[place] if choice.layer is None else cross[place][[choice.layer]]
            weights = layers.mean((0, 1)) if choice.head is None else layers[0, choice.head]
            torch.testing.assert_close(shares, by_hand(weights, READINGS[place], choice.at))


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_needs_are_what_each_word_costs_more_without_another(family):
    model = make_model(family, "none")
    found = needs(own_copy(model), READINGS)

    def costs(src, reading):
        logits = model(make_batch([src], [reading.tgt.ids]))[0].detach()
        each = [-float(row.log_softmax(0)[token]) for row, token in zip(logits, reading.tgt.ids, strict=False)]
        joints = {*reading.tgt.owners}
        return torch.tensor([sum(each[n] for n, own in enumerate(reading.tgt.owners) if own == j) for j in joints])

    for reading, rises in zip(READINGS, found, strict=True):
        for joint in {*reading.src.owners}:
            rest = [token for token, owner in zip(reading.src.ids, reading.src.owners, strict=True) if owner != joint]
            expected = costs(rest, reading) - costs(reading.src.ids, reading)
            torch.testing.assert_close(rises[:, joint], expected, atol=1e-5, rtol=1e-5)


def test_a_copy_is_its_own():
    model = make_model()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    copied = own_copy(model)
    for parameter in copied.parameters():
        parameter.zero_()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_model_of_unknown_parts_is_refused():
    from tests.decode.models import Echo

    with pytest.raises(ValueError, match="a model must be one of Transformer, Recurrent to be looked into, got Echo"):
        find_places(Echo(7))


@pytest.mark.parametrize("family", ["transformer", "recurrent"])
def test_nobody_looks_any_more_when_a_batch_is_read(family):
    own, seen = own_copy(make_model(family, "none")), []
    for _ in range(2):
        show_weights(own, make_batch(SRC, TGT), lambda kind, layer, weights: seen.append((kind, layer)))
    assert seen == [(place.kind, place.layer) for place in find_places(own)] * 2
    show_weights(own, make_batch(SRC, TGT), lambda kind, layer, weights: seen.append((kind, layer)), ("cross",))
    assert [kind for kind, _ in seen].count("cross") == 3
