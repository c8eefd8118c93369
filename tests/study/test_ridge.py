"""The linear probe finds what was planted, as much of it as can be found, and nothing where nothing is."""

import pytest
import torch
from torch.testing import assert_close

from regard.study.ridge import STRENGTHS, fit_ridge, probe, r_squared
from tests.parts import noise

N_SENTENCES, LENGTH, D = 300, 7, 11
SENTENCES = torch.arange(N_SENTENCES).repeat_interleave(LENGTH)
PLACES = torch.arange(LENGTH).repeat(N_SENTENCES).double()


def planted(strength):
    """Gives vectors with the place along one direction, under noise of variance 1 in all."""
    direction = torch.nn.functional.normalize(noise(D, seed=1), dim=0)
    return strength * PLACES[:, None] * direction + noise(len(PLACES), D, seed=2)


@pytest.mark.parametrize("strength", [0.2, 0.5, 2.0])
def test_r_squared_is_the_share_that_noise_leaves(strength):
    signal = strength**2 * float(PLACES.var(correction=0))
    found = probe(planted(strength), PLACES[:, None], SENTENCES, splits=4, seed=0)
    assert found.shape == (4, 1)
    assert float(found.mean()) == pytest.approx(signal / (signal + 1), abs=0.03)


def test_nothing_is_found_where_nothing_is():
    shuffled = PLACES[torch.randperm(len(PLACES), generator=torch.Generator().manual_seed(5))]
    y = torch.stack([PLACES, shuffled], dim=1)
    assert (probe(planted(0.0), y, SENTENCES, 3, 0) < 0.01).all()
    assert (probe(planted(2.0), y, SENTENCES, 3, 0)[:, 1] < 0.01).all()


def test_one_vector_far_from_all_others_does_not_outweigh_them():
    """A stream that has collapsed but for one word, which is learned from in some splits and held out in others."""
    x = 1e-7 * planted(0.5)
    x[12 * LENGTH + 3] = 1.0
    assert (probe(x, PLACES[:, None], SENTENCES, 20, 0) > -0.01).all()


def test_sentences_are_held_out_and_not_tokens():
    """What only names the sentence tells nothing about others, though it tells all about this one."""
    names = torch.nn.functional.one_hot(SENTENCES).double()
    of_sentence = noise(N_SENTENCES, seed=3)[SENTENCES]
    assert (probe(names, of_sentence[:, None], SENTENCES, 2, 0) < 0.05).all()
    weights, offset = fit_ridge(names, of_sentence[:, None], torch.full((1, 1), 1e-8, dtype=torch.float64))
    assert_close(names @ weights[0] + offset[0], of_sentence[:, None], atol=1e-4, rtol=0)


def test_a_fit_solves_the_normal_equations():
    x, y = planted(0.5), torch.stack([PLACES, PLACES.square()], dim=1)
    strengths = torch.tensor([[0.1, 3.0], [1.0, 0.01]], dtype=torch.float64)
    weights, offset = fit_ridge(x, y, strengths)
    centred, targets = x - x.mean(0), y - y.mean(0)
    scale = float(centred.square().mean(0).mean())
    for s in range(2):
        for k in range(2):
            left = centred.T @ centred / len(x) + strengths[s, k] * scale * torch.eye(D, dtype=torch.float64)
            expected = torch.linalg.solve(left, centred.T @ targets[:, k] / len(x))
            assert_close(weights[s, :, k], expected)
            assert_close(offset[s, k], y[:, k].mean() - x.mean(0) @ expected)


def test_r_squared_is_one_for_the_truth_and_zero_for_the_mean():
    y = noise(13, 2, seed=4)
    assert_close(r_squared(y, y), torch.ones(2, dtype=torch.float64))
    assert_close(r_squared(y, y.mean(0).expand_as(y)), torch.zeros(2, dtype=torch.float64))
    assert (r_squared(y, -y + 3) < 0).all()


def test_the_seed_draws_the_splits():
    x, y = planted(0.5), PLACES[:, None]
    one, same, other = (probe(x, y, SENTENCES, 2, seed) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)
    assert STRENGTHS[0] < 1e-6 and STRENGTHS[-1] > 10


def test_few_sentences_are_refused():
    few = SENTENCES < 7
    with pytest.raises(ValueError, match="needs 8 sentences or more, some to learn from and some held out, got 7"):
        probe(planted(1.0)[few], PLACES[few][:, None], SENTENCES[few], 1, 0)
