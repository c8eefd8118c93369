"""Which engine a model gets, what all of them promise, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from regard import engine as engines
from regard.batch import make_batch
from regard.build import build_model
from regard.config import DecodeSettings, ModelSettings, PartSettings
from regard.engine import BatchScheduler, select_engine
from regard.engine.cuda import CudaEngine
from regard.engine.native import NativeEngine
from regard.engine.plain import PlainDecoder, PlainEngine
from regard.model import Recurrent
from regard.model.norm import LayerNorm, RMSNorm
from regard.padding import BOS, EOS
from regard.position import Rotary
from regard.search import SEARCH
from regard.search.constrained import Constraint, constrained_search
from regard.search.constraint import ConstraintAutomaton
from tests.search.models import same

V = 23
SRC = [[5, 6, 7], [8, 9, 10, 11, 12], [4]]


def made(**settings):
    torch.manual_seed(0)
    return build_model(
        ModelSettings(n_encoder_layers=1, n_decoder_layers=2, d_model=12, n_heads=3, d_ff=17, **settings), (V, V)
    ).eval()


def run(decoder):
    """Return the log-probabilities of three steps for the same tokens in every hypothesis."""
    state, out = decoder.start(SRC, 1), []
    for token in (BOS, 4, 5):
        log_probs, state = decoder.log_probs(np.full(len(SRC), token), state, None)
        out.append(log_probs[:, EOS:])
    return np.stack(out)


def is_plain(model):
    """Tell whether a model stays as it is."""
    engine = select_engine(model)
    return type(engine) is PlainEngine and engine.model is model


@pytest.mark.parametrize("method", ["greedy", "beam", "sample"])
@pytest.mark.parametrize("prefixes", [None, [[5], [], [6, 7]]])
def test_a_search_in_batches_finds_what_each_sentence_finds_alone(method, prefixes):
    model, settings = made(tie="none").double(), DecodeSettings(method=method, beam=3, batch_tokens=7, max_extra=4)
    engine = select_engine(model)
    assert type(engine) is PlainEngine  # of float64 there is no other
    found = dict(engine.search(SRC, settings, prefixes))
    for i, source in enumerate(SRC):
        prefix = None if prefixes is None else [prefixes[i]]
        (alone,) = SEARCH[method](PlainDecoder(model), [source], settings, prefix)
        assert [h.ids for h in found[i]] == [h.ids for h in alone]


@pytest.mark.parametrize("kind", ["native", "int8", "slots", "plain"])
def test_what_does_not_meet_its_constraints_is_searched_again_and_the_rest_as_ever(kind):
    model = made(tie="none").requires_grad_(False)
    known = {"native": select_engine, "slots": CudaEngine, "plain": PlainEngine}
    engine = known.get(kind, lambda each: select_engine(each, "int8"))(model)
    settings = DecodeSettings(beam=3, n_best=2, batch_tokens=7, max_extra=4)
    sources, prefixes = [*SRC, [9, 9]], [[5], [], [], []]
    constraints = [[Constraint(((20, 21), (22,)))], None, [], [Constraint(((19,),))]]
    found = dict(engine.search(sources, settings, prefixes, None, constraints))
    assert all({20, 22} & set(each.ids) and each.ids[0] == 5 for each in found[0])
    assert all(19 in each.ids for each in found[3])
    free = dict(engine.search(sources, settings, prefixes))
    assert [found[1], found[2]] == [free[1], free[2]]
    again = [i for i in (0, 3) if not all(ConstraintAutomaton(constraints[i]).is_met(each.ids) for each in free[i])]
    assert again, "the model says by itself what it is to say"
    own, some = [constraints[i] for i in again], [sources[i] for i in again]
    same(
        [found[i] for i in again], constrained_search(engine.decoder, some, settings, own, [prefixes[i] for i in again])
    )
    assert all(found[i] == free[i] for i in {0, 3} - set(again))


def test_what_a_model_says_by_itself_is_not_searched_again(monkeypatch):
    engine, settings = PlainEngine(made(tie="none").double()), DecodeSettings(beam=3, max_extra=4)
    free = dict(engine.search(SRC, settings))
    said = [[Constraint((tuple(free[i][0].ids[:1]),), bonus)] for i, bonus in enumerate((None, 1.0, None))]
    monkeypatch.setattr(engines, "constrained_search", None)
    assert dict(engine.search(SRC, settings, constraints=said)) == free


def test_a_source_in_another_form_counts_where_a_constraint_would_only_add(monkeypatch):
    engine, settings = PlainEngine(made(tie="none").double()), DecodeSettings(beam=3, max_extra=4)
    other, source = [9, 8, 7], [4]
    said, free = (dict(engine.search([each], settings))[0] for each in (other, source))
    token = next(token for token in said[0].ids if token not in free[0].ids)
    wanted = [[Constraint(((token,),))]]
    for bound, expected in (([*free[0].ids, token], said), ([token], None)):
        hypotheses = [replace(free[0], ids=bound)]
        monkeypatch.setattr(engines, "constrained_search", lambda *_, made=hypotheses: [made])
        found = dict(engine.search([source], settings, constraints=wanted, rewritten=[other]))[0]
        assert found == (expected or hypotheses)
        assert dict(engine.search([source], settings, constraints=wanted))[0] == hypotheses


def test_a_source_without_an_entry_for_its_constraints_is_refused():
    with pytest.raises(ValueError, match="got 2 for 3"):
        list(select_engine(made()).search(SRC, DecodeSettings(), constraints=[None, None]))


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize(
    ("attention", "state_norm"),
    [("additive", "none"), ("additive", "layer"), ("scaled_dot", "none"), ("bilinear", "none")],
)
@pytest.mark.parametrize(("method", "beam"), [("greedy", 1), ("beam", 3), ("beam", 5)])
def test_no_bit_of_a_recurrent_models_results_depends_on_the_batch(precision, attention, state_norm, method, beam):
    torch.manual_seed(0)
    parts = {"attention": PartSettings(attention), "position": PartSettings("none"), "state_norm": state_norm}
    sizes = {"n_encoder_layers": 2, "n_decoder_layers": 1, "d_model": 64, "n_heads": 1}
    engine = select_engine(build_model(ModelSettings(family="recurrent", **sizes, **parts), (V, V)), precision)
    settings = DecodeSettings(method=method, beam=beam, n_best=beam, max_extra=3)
    sources = [[4 + (7 * i + n) % (V - 4) for i in range(n)] for n in (1, 2, 5, 9, 15, 16, 17, 29)]
    together = engine.search_batch(sources, settings)
    assert [engine.search_batch([source], settings)[0] for source in sources] == together
    assert engine.search_batch(sources[3:6], settings) == together[3:6]


def test_a_model_on_an_engine_is_in_evaluation_mode_and_stays_there():
    for model in (made(dropout=0.5), made(dropout=0.5).double()):
        engine = select_engine(model.train())
        for _ in engine.search(SRC, DecodeSettings()):
            assert not any(module.training for module in engine.model.modules())
        assert not any(module.training for module in engine.model.modules())


def test_a_scheduler_finds_what_the_search_finds_whatever_comes_and_goes():
    engine = select_engine(made(tie="none"))
    beam, greedy = DecodeSettings(beam=3, max_extra=5, batch_tokens=8), DecodeSettings(method="greedy", max_extra=5)
    scheduler = engine.scheduler()
    assert type(scheduler) is BatchScheduler and scheduler.step() == []
    numbers = [scheduler.add(source, settings) for settings in (beam, greedy) for source in SRC]
    scheduler.cancel(numbers[1])
    assert len(scheduler) == 5
    done = {}
    while len(scheduler):
        done |= dict(scheduler.step())
    expected = [found for settings in (beam, greedy) for _, found in sorted(engine.search(SRC, settings))]
    assert done.keys() == set(numbers) - {numbers[1]}
    for number, found in done.items():
        assert [h.ids for h in found] == [h.ids for h in expected[numbers.index(number)]]


def test_a_scheduler_refuses_settings_at_once_and_reports_what_fails(monkeypatch):
    engine = select_engine(made())
    scheduler = engine.scheduler()
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 9 and 2"):
        scheduler.add(SRC[0], DecodeSettings(beam=2, n_best=9))
    number = scheduler.add([V + 5], DecodeSettings())
    ((other, error),) = scheduler.step()
    assert other == number and isinstance(error, IndexError) and len(scheduler) == 0


@pytest.mark.parametrize("position", ["t5", "alibi", "shaw", "difference"])
def test_what_cannot_be_packed_stays_as_it_is(position):
    model = made(position=PartSettings(position))
    assert is_plain(model)


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
        assert is_plain(model)
    model = made(position=PartSettings("rotary"))
    model.encoder.layers[0].attention.position = Rotary(500.0)
    assert is_plain(model)
    for last, place in ((None, "before"), (LayerNorm(12), "after"), (RMSNorm(12), "before")):
        model = made(norm_place=place)
        model.decoder.last_norm = last
        assert is_plain(model)


def test_parts_that_packing_does_not_know_stay_as_they_are():
    class Another(LayerNorm):
        """Looks like one that it knows."""

    model = made()
    model.decoder.layers[1].after_attention.norm = Another(12)
    assert is_plain(model)


def test_other_attentions_and_families_stay_as_they_are():
    for model in (
        made(attention=PartSettings("additive")),
        made(norm="batch"),
        made(family="recurrent", position=PartSettings("none")),
        made(family="recurrent", position=PartSettings("none"), state_norm="layer"),
    ):
        assert is_plain(model)


def test_packing_leaves_the_model_alone():
    model = made()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    select_engine(model, "int8")
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
        {"family": "recurrent", "position": PartSettings("none"), "state_norm": "layer"},
    ],
)
@pytest.mark.parametrize("switch", ["0", "1"])
def test_int8_stays_near_for_every_family(settings, switch, monkeypatch):
    monkeypatch.setenv("REGARD_NATIVE", switch)
    model = made(**settings)
    engine = select_engine(model, "int8")
    packs = settings in ({}, {"position": PartSettings("rotary")})
    assert isinstance(engine, NativeEngine) == (packs and switch == "1")
    exact, near = (run(one) for one in (PlainDecoder(model), engine.decoder))
    assert not np.array_equal(exact, near)
    assert np.abs(exact - near).mean() < 0.05 * exact.std()


def test_the_recurrent_family_is_quantised_too():
    model = made(family="recurrent", position=PartSettings("none"))
    small = select_engine(model, "int8").model
    assert isinstance(small, Recurrent)
    assert type(small.mix).__name__ == "Int8Linear"


@pytest.mark.parametrize("double", [True, False])
def test_the_plain_model_is_still_there(double):
    model = made().double() if double else made()
    engine, batch = select_engine(model), make_batch(SRC, SRC)
    with torch.no_grad():
        assert_close(engine.model(batch), model(batch))
