"""Shuffled words: a model without positions has the same bag of outputs, one with positions does not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from regard.build import build_model
from regard.study.extrapolate import model_settings, schemes
from regard.study.permutation import QUICK, SYMBOLS, figure, how_far, judge, run, tables

CPU = torch.device("cpu")
TINY = replace(QUICK, longest=5, steps=2, rows=4, judged=7, d_model=16, d_ff=16, n_heads=2, n_seeds=2)
TEXTS = SYMBOLS.draw(np.random.default_rng(0), 7, 5)[0]
ORDER = np.random.default_rng(1).permuted(np.tile(np.arange(5), (7, 1)), axis=1)


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
    study = run(["none"], TINY, CPU)
    assert study.bag_loss == pytest.approx(np.mean(np.log([5, 4, 3, 2, 1])))


def test_the_study_lists_each_encoding():
    study = run(["none", "sinusoidal"], TINY, CPU)
    assert [each.encoding for each in study.encodings] == ["none", "sinusoidal"]
    bag, placed = study.encodings
    assert bag.moved.mean < 1e-5 < placed.moved.mean and bag.moved.n == 2
    assert bag.loss.mean == pytest.approx(bag.shuffled_loss.mean, rel=1e-4)
    assert tables(study)["shuffled"].row_count == 2 and len(figure(study).axes) == 2


def test_an_unknown_encoding_and_no_steps_are_refused():
    with pytest.raises(ValueError, match="unknown scheme 'sinusodal'"):
        run(["sinusodal"], TINY, CPU)
    with pytest.raises(ValueError, match="1 or more, got 0 and 2"):
        run([], replace(TINY, steps=0), CPU)
