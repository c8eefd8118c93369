"""Shuffled words: a model without positions has the same bag of outputs, one with positions does not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.build import build_model
from regard.study.extrapolate import model_settings, schemes
from regard.study.permutation import (
    QUICK,
    SYMBOLS,
    SentencePairs,
    figure,
    how_far,
    judge,
    run,
    sentences_moved,
    shared_words,
    shuffle_translations,
    tables,
)
from tests.study.models import make_pairs, translator_with
from tests.trace.makers import make_model, make_translator

CPU = torch.device("cpu")
TINY = replace(QUICK, longest=5, steps=2, rows=4, judged=7, d_model=16, d_ff=16, n_heads=2, n_seeds=2)
TEXTS = SYMBOLS.draw(np.random.default_rng(0), 7, 5)[0]
ORDER = np.random.default_rng(1).permuted(np.tile(np.arange(5), (7, 1)), axis=1)
SENTENCES = SentencePairs("random", translator_with(), make_pairs()[:9])


def made(name):
    torch.manual_seed(0)
    sizes = (SYMBOLS.vocab_size, SYMBOLS.vocab_size)
    return build_model(model_settings(TINY, schemes(5)[name]), sizes).double().eval()


def test_without_positions_outputs_are_permuted_with_the_words_and_the_decoder_cannot_tell():
    model, shuffled = made("none"), np.take_along_axis(TEXTS, ORDER, axis=1)
    assert how_far(model, TEXTS, ORDER) < 1e-12
    assert judge(model, TEXTS, TEXTS) == pytest.approx(judge(model, shuffled, TEXTS), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in schemes(5) if name not in {"none", "index"}])
def test_with_positions_they_are_not(name):
    model, same = made(name), np.tile(np.arange(5), (7, 1))
    assert how_far(model, TEXTS, same) == 0.0
    assert how_far(model, TEXTS, ORDER) > 1e-4


def test_a_bag_of_words_has_the_loss_of_one_that_draws_without_replacement():
    study = run(["none"], SENTENCES, TINY, CPU)
    assert study.bag_loss == pytest.approx(np.mean(np.log([5, 4, 3, 2, 1])))


def test_the_study_lists_each_encoding():
    study = run(["none", "sinusoidal"], SENTENCES, TINY, CPU)
    assert [each.encoding for each in study.encodings] == ["none", "sinusoidal"]
    bag, placed = study.encodings
    assert bag.moved.mean < 1e-5 < placed.moved.mean and bag.moved.n == 2
    assert bag.loss.mean == pytest.approx(bag.shuffled_loss.mean, rel=1e-4)
    assert tables(study)["shuffled"].row_count == 2 and len(figure(study).axes) == 3
    assert tables(study)["translations"].row_count == 1


def test_an_unknown_encoding_and_no_steps_are_refused():
    with pytest.raises(ValueError, match="unknown scheme 'sinusodal'"):
        run(["sinusodal"], SENTENCES, TINY, CPU)
    with pytest.raises(ValueError, match="1 or more, got 0 and 2"):
        run([], SENTENCES, replace(TINY, steps=0), CPU)


def test_without_positions_a_shuffled_sentence_is_translated_as_it_was():
    placed, bag = (make_translator(make_model(scheme=scheme)) for scheme in ("sinusoidal", "none"))
    found = [shuffle_translations(SentencePairs("m", each, make_pairs()[:9]), [0, 1]) for each in (placed, bag)]
    assert found[1].moved.mean < 1e-12 < found[0].moved.mean and found[0].moved.n == 2
    assert found[1].kept_words.mean == 1.0 and found[1].shuffled_bleu.mean == pytest.approx(found[1].bleu)
    assert found[0].n_pairs == 9 and len(found[0].examples) == 3


def test_a_model_without_a_stream_has_no_place_to_move():
    model = make_model("recurrent", "none", "additive", n_heads=1)
    assert sentences_moved(model, [[5, 6]], [np.array([1, 0])]) is None
    assert shuffle_translations(SentencePairs("m", make_translator(model), make_pairs()[:4]), [0]).moved is None


def test_shared_words_are_counted_as_often_as_they_occur_in_any_order():
    assert shared_words(["a b b"], ["B a"], "en") == pytest.approx(4 / 5)
    assert shared_words(["你好"], ["好 你"], "zh") == 1.0
    assert shared_words(["a", "b"], ["a", "c"], "en") == 0.5 and shared_words([""], [""], "en") == 0.0
