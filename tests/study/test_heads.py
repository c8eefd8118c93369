"""Taking heads out: what is measured is a model without them, and a planted order is found."""

import pytest

import regard
from regard.study.heads import (
    LEAST_FIRST,
    MOST_FIRST,
    RANDOM,
    Pruner,
    PruningCurve,
    PruningPoint,
    PruningSettings,
    half,
    head_counts,
    measure_curves,
    run,
)
from regard.study.repeats import MeanStd
from regard.study.sequences import encode_pairs
from regard.trace.head_ablation import measure_quality
from tests.study.models import make_pairs, translator_with
from tests.trace.makers import make_model, make_translator
from tests.trace.planted import learned_once
from tests.trace.test_head_ablation import same, without

PAIRS = make_pairs(8, shortest=1, longest=5)


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    folder, pairs = learned_once(tmp_path_factory)
    return regard.load(folder), pairs[:40]


def curve(*bleus):
    n = len(bleus) - 1
    return PruningCurve(
        "", [PruningPoint(n - i, MeanStd(0.0, 0.0, 1), MeanStd(float(bleu), 0.0, 1)) for i, bleu in enumerate(bleus)]
    )


def test_quality_without_heads_is_that_of_a_model_without_them():
    model = make_model(n_encoder_layers=2)
    translator = make_translator(model)
    pruner = Pruner(translator, encode_pairs(translator, PAIRS, 1))
    assert len(pruner.columns) == 8
    removed = model
    for name in ("encoder:1:0", "cross:0:1", "decoder:0:0"):
        kind, layer, head = name.split(":")
        removed = without(removed, kind, int(layer), int(head))
    found = pruner.quality(["encoder:1:0", "cross:0:1", "decoder:0:0"])
    expected = measure_quality(removed, pruner.batches, translator, PAIRS)
    assert found.loss == pytest.approx(expected.loss) and found.bleu == pytest.approx(expected.bleu)
    assert same(pruner.model, model)


def planted(model, useless):
    """Takes heads out of a model for good, and lets it be judged by its own translations."""
    for name in useless:
        kind, layer, head = name.split(":")
        model = without(model, kind, int(layer), int(head))
    translator = make_translator(model, max_extra=4)
    sources = [src for src, _ in make_pairs(8, shortest=3)]
    return translator, [(src, found.text) for src, found in zip(sources, translator.translate(sources), strict=True)]


def test_the_only_useful_head_goes_last_and_costs_all():
    every = [f"{place}:{head}" for place in ("encoder:0", "encoder:1", "decoder:0", "cross:0") for head in (0, 1)]
    translator, pairs = planted(make_model(n_encoder_layers=2), [name for name in every if name != "decoder:0:0"])
    study = run("planted", translator, pairs, PruningSettings(points=9, random_orders=1))
    assert study.importance[0][0] == "decoder:0:0" and study.importance[0][1] > 0.3
    assert [rise for _, rise in study.importance[1:]] == [0.0] * 7
    measured, back, _ = ([kept.loss.mean for kept in each.points] for each in study.curves)
    assert len(set(measured[:-1])) == 1 and measured[-1] > measured[0] + 0.3
    assert len(set(back[1:])) == 1 and (back[0], back[-1]) == (measured[0], measured[-1])


def test_curves_begin_with_all_heads_and_end_with_none():
    translator, pairs = planted(make_model(n_encoder_layers=2), [])
    study = run("random", translator, pairs, PruningSettings(points=3, random_orders=2, seed=3))
    assert [each.order for each in study.curves] == [LEAST_FIRST, MOST_FIRST, RANDOM]
    for each in study.curves:
        assert [kept.n for kept in each.points] == [8, 4, 0]
        assert each.points[0].loss.mean == study.curves[0].points[0].loss.mean == study.whole.loss
        assert each.points[-1].loss.mean == pytest.approx(study.curves[0].points[-1].loss.mean)
    assert [study.curves[n].points[1].loss.n for n in range(3)] == [1, 1, 2]
    assert (study.n_ranked_on, study.n_pairs) == (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("useless", [["encoder:0:1"], ["decoder:0:1", "encoder:0:0"]])
def test_useless_heads_of_a_model_that_has_learned_go_first(learned, useless):
    translator, pairs = learned
    alone, _ = planted(translator.model, useless)
    alone.tokenizer = translator.tokenizer
    study = run("planted", alone, pairs, PruningSettings(points=7, random_orders=1))
    assert {name for name, _ in study.importance[-len(useless) :]} == set(useless)
    measured, back, _ = study.curves
    for number in range(len(useless) + 1):
        assert measured.points[number] == PruningPoint(6 - number, measured.points[0].loss, measured.points[0].bleu)
    assert measured.points[len(useless) + 1].loss.mean > measured.points[0].loss.mean
    assert back.points[1].loss.mean > measured.points[1].loss.mean
    assert measured.points[0].bleu.mean > measured.points[-1].bleu.mean + 10


def test_what_several_orders_share_is_measured_once():
    translator = translator_with()
    pruner, asked = Pruner(translator, encode_pairs(translator, PAIRS, 1)), []

    def bar(items, total, what):
        asked.extend(frozenset(key) for key, _ in items)
        return items

    measure_curves(pruner, list(pruner.columns), PruningSettings(points=3, random_orders=3), bar)
    assert len(asked) == len(set(asked)) and frozenset() in asked and frozenset(pruner.columns) in asked


def test_halves_share_no_pair():
    text = encode_pairs(translator_with(), PAIRS, 1)
    one, other = half(text, 0), half(text, 1)
    assert sorted([*one.pairs, *other.pairs]) == sorted(PAIRS) and not {*one.pairs} & {*other.pairs}
    assert (one.src, one.tgt) == (text.src[::2], text.tgt[::2])


def test_enough_heads_keep_bleu_at_every_larger_number():
    assert curve(30, 29.5, 29.2, 28.9, 30.0, 0).enough() == 3
    assert curve(30, 31, 32).enough() == 0
    assert curve(30, 20, 30).enough() == 2
    assert curve(30, 28, 20).enough(lost=5.0) == 1


def test_numbers_of_heads_run_evenly_from_all_to_none():
    assert head_counts(60, 5) == [60, 45, 30, 15, 0]
    assert head_counts(3, 11) == [3, 2, 1, 0]
    with pytest.raises(ValueError, match="needs 2 points or more, all heads and none, got 1"):
        head_counts(6, 1)


def test_few_pairs_are_refused():
    with pytest.raises(ValueError, match="needs 8 pairs or more that the model can read, got 2"):
        run("random", translator_with(), PAIRS[:2], PruningSettings())
