"""The packed decoder: equal to the Transformer it was made of, step by step, and honest about what it cannot pack.

In float64, and where it is told to, it is PyTorch's; `test_native.py` is about the compiled one.
"""

import pytest
import torch
from torch.testing import assert_close

from regard.batch import make_batch, make_source
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.engine import swift
from regard.model import Recurrent
from regard.model.lean import GROWTH, LeanTransformer
from regard.model.norm import LayerNorm, RMSNorm
from regard.padding import BOS
from regard.position import Rotary
from regard.search import SEARCH

V = 23
SRC = [[5, 6, 7], [8, 9, 10, 11, 12], [4]]


def made(**settings):
    torch.manual_seed(0)
    return build_model(
        ModelSettings(n_encoder_layers=1, n_decoder_layers=2, d_model=12, n_heads=3, d_ff=17, **settings), (V, V)
    ).eval()


def run(model, tokens, n_hypotheses=1):
    """Gives the logits of each step for the same tokens in every hypothesis."""
    state, out = model.start(make_source(SRC), n_hypotheses), []
    for token in tokens:
        logits, state = model.step(torch.full((len(SRC) * n_hypotheses,), token), state)
        out.append(logits)
    return torch.stack(out), state


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "none", "index", "half_wave", "rotary"])
@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_every_step_equals_the_transformer(norm, place, position):
    model = made(norm=norm, norm_place=place, position=PartSettings(position)).double()
    packed = swift(model)
    assert isinstance(packed, LeanTransformer)
    tokens = [BOS, *(4 + i % 19 for i in range(GROWTH + 3))]  # past the first room for written tokens
    assert_close(run(packed, tokens)[0], run(model, tokens)[0])


def test_places_past_the_known_codes_are_coded_too(monkeypatch):
    monkeypatch.setattr("regard.position.contract.KNOWN_PLACES", 3)
    model = made().double()
    assert_close(run(swift(model), [BOS, 4, 5, 6, 7, 8])[0], run(model, [BOS, 4, 5, 6, 7, 8])[0])


def test_hypotheses_can_be_reordered_and_sentences_dropped():
    model = made().double()
    rows, kept = torch.tensor([1, 0, 3, 3, 4, 5]), torch.tensor([0, 2])
    results = []
    for one in (model, swift(model)):
        state = one.start(make_source(SRC), 2)
        _, state = one.step(torch.tensor([4, 5, 6, 7, 8, 9]), state)
        _, state = one.step(torch.tensor([9, 8, 7, 6, 5, 4]), state.reorder(rows))
        logits, _ = one.step(torch.tensor([10, 11, 12, 13]), state.keep(kept))
        results.append(logits)
    assert_close(*results)


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_searches_find_the_same(method):
    model, settings = made().double(), DecodeSettings(method=method, beam=3)
    found = [SEARCH[method](one, make_source(SRC), settings, None) for one in (model, swift(model))]
    assert [[h.ids for h in sentence] for sentence in found[0]] == [[h.ids for h in sentence] for sentence in found[1]]


@pytest.mark.parametrize("position", ["t5", "alibi", "shaw", "difference"])
def test_what_cannot_be_packed_stays_as_it_is(position):
    model = made(position=PartSettings(position))
    assert swift(model) is model


def test_layers_of_different_sizes_stay_as_they_are():
    for change in (
        lambda layer: setattr(layer.attention, "n_heads", 4),
        lambda layer: setattr(layer.after_attention, "norm_first", True),
        lambda layer: setattr(layer.feed_forward, "activation", torch.nn.functional.gelu),
        lambda layer: setattr(layer.after_cross_attention, "norm", RMSNorm(12)),
        lambda layer: setattr(layer.attention, "position", Rotary()),
        lambda layer: setattr(layer.cross_attention, "position", Rotary()),
    ):
        model = made()
        change(model.decoder.layers[1])
        assert swift(model) is model
    model = made(position=PartSettings("rotary"))
    model.encoder.layers[0].attention.position = Rotary(500.0)
    assert swift(model) is model
    for last, place in ((None, "before"), (LayerNorm(12), "after"), (RMSNorm(12), "before")):
        model = made(norm_place=place)
        model.decoder.last_norm = last
        assert swift(model) is model


def test_parts_that_packing_does_not_know_stay_as_they_are():
    class Another(LayerNorm):
        """Looks like one that it knows."""

    model = made()
    model.decoder.layers[1].after_attention.norm = Another(12)
    assert swift(model) is model


def test_other_attentions_and_families_stay_as_they_are():
    for model in (
        made(attention=PartSettings("additive")),
        made(norm="batch"),
        made(family="recurrent", position=PartSettings("none")),
    ):
        assert swift(model) is model


def test_packing_leaves_the_model_alone():
    model = made()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    swift(model, "int8")
    assert model.state_dict().keys() == before.keys()
    for name, tensor in model.state_dict().items():
        assert_close(tensor, before[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"position": PartSettings("rotary")},
        {"position": PartSettings("t5"), "d_embedding": 5},
        {"family": "recurrent", "position": PartSettings("none")},
    ],
)
@pytest.mark.parametrize("switch", ["0", "1"])
def test_int8_stays_near_for_every_family(settings, switch, monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", switch)
    model = made(**settings)
    with torch.no_grad():
        exact, near = (run(one, [BOS, 4, 5])[0] for one in (model, swift(model, "int8")))
    assert not exact.equal(near)
    assert float((exact - near).abs().mean()) < 0.05 * float(exact.std())


def test_the_recurrent_family_is_quantised_too():
    model = made(family="recurrent", position=PartSettings("none"))
    small = swift(model, "int8")
    assert isinstance(small, Recurrent)
    assert type(small.mix).__name__ == "Int8Linear"


@pytest.mark.parametrize("double", [True, False])
def test_the_plain_model_is_still_there(double):
    model = made().double() if double else made()
    packed, batch = swift(model), make_batch(SRC, SRC)
    assert packed is not model and model.plain() is model
    with torch.no_grad():
        assert_close(packed.plain()(batch), model(batch))
