"""When a search stops, what becomes of the longest hypotheses, and a first token that is forced: in every engine."""

import pytest
import torch

from regard.engine import select_engine
from regard.engine.cuda import self_contained
from regard.engine.native import NativeEngine
from tests.engine.test_slots import in_slots
from tests.search.models import SOURCES, find, make_model, same, settings

RULES = [
    {"early_stopping": early, "at_limit": at_limit}
    for early in ("full", "heuristic", "never")
    for at_limit in ("behind", "among", "end")
]
SEARCHES = [
    {"beam": 1},
    {"beam": 3, "limit": 7},
    {"beam": 4, "n_best": 3, "length_penalty": 0.4},
    {"beam": 3, "limit": 2},
]


def compiled(model, **changes):
    """Searches with the model packed for C++."""
    engine = select_engine(model)
    assert type(engine) is NativeEngine
    found = dict(engine.search(SOURCES, settings(**changes)))
    return [found[i] for i in range(len(SOURCES))]


def alike(found, expected):
    """Compares what is computed in float32 in two ways."""
    for some, others in zip(found, expected, strict=True):
        assert [(each.ids, each.finished) for each in some] == [(each.ids, each.finished) for each in others]
        assert [each.score for each in some] == pytest.approx([each.score for each in others], abs=1e-4)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("changes", SEARCHES, ids=str)
def test_every_engine_finds_what_the_definition_finds(changes, rules):
    for seed in range(2):
        model = make_model(seed=seed).requires_grad_(False)
        expected = find(model, SOURCES, **changes, **rules)
        same(in_slots(model, SOURCES, **changes, **rules), expected)
        single = make_model(seed=seed).float().requires_grad_(False)
        alike(compiled(single, **changes, **rules), find(single, SOURCES, **changes, **rules))


PARTS = {"output_bias": True, "scale_embedding": False, "embedding_norm": True}


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_what_imported_models_have_is_in_every_engine(place, norm):
    """A bias of logits, vectors that are not scaled, and a norm of them."""
    plain = make_model(seed=3, norm=norm, norm_place=place).requires_grad_(False)
    model = make_model(seed=3, norm=norm, norm_place=place, **PARTS).requires_grad_(False)
    for parameter in (model.output.bias, model.src.norm.weight, model.tgt.norm.weight):
        parameter.copy_(torch.linspace(-1.0, 2.0, len(parameter)))
    expected = find(model, SOURCES, beam=3)
    assert [each[0].ids for each in expected] != [each[0].ids for each in find(plain, SOURCES, beam=3)]
    same(in_slots(model, SOURCES, beam=3), expected)
    single = model.float()
    alike(compiled(single, beam=3), find(single, SOURCES, beam=3))


def test_rules_make_a_difference():
    """A search that does not stop with the first ends finds hypotheses that score at least as well."""
    better = 0
    for seed in range(6):
        model = make_model(seed=seed).requires_grad_(False)
        full, never = (find(model, SOURCES, beam=3, early_stopping=rule, limit=12) for rule in ("full", "never"))
        for one, other in zip(full, never, strict=True):
            assert other[0].score >= one[0].score - 1e-6 or not one[0].finished
            better += other[0].score > one[0].score + 1e-6
    assert better


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_at_its_longest_length_a_hypothesis_ends_at_no_cost(method):
    model = make_model(seed=1).requires_grad_(False)
    for hypotheses in find(model, SOURCES, method=method, beam=2, limit=4, at_limit="end"):
        assert all(each.finished for each in hypotheses)
        for each in hypotheses:
            if len(each.ids) == 3:
                assert each.token_log_probs[-1] == 0.0


@pytest.mark.parametrize("changes", [{"method": "greedy"}, {"beam": 3, "n_best": 2}, {"method": "sample"}], ids=str)
def test_a_forced_first_token_costs_nothing(changes):
    first, model = 5, make_model(seed=2).float().requires_grad_(False)
    expected = find(model, SOURCES, forced_bos=first, **changes)
    assert all(each.ids[0] == first and each.token_log_probs[0] == 0.0 for some in expected for each in some)
    alike(compiled(model, forced_bos=first, **changes), expected)
    assert not self_contained(settings(forced_bos=first)), "slots leave it to the definition"
    alike(in_slots(model, SOURCES, forced_bos=first, **changes), expected)
    prefixed = find(model, SOURCES, forced_bos=first, prefix=[[6]] * len(SOURCES), **changes)
    assert all(each.ids[:2] == [first, 6] for some in prefixed for each in some)
    again = find(model, SOURCES, forced_bos=first, prefix=[[first, 6]] * len(SOURCES), **changes)
    alike(again, prefixed)
