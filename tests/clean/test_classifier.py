"""The classifier finds noise in a corpus that nobody has labelled, and how much there is."""

import numpy as np
import pytest

from regard.clean.classifier import class_shares, fit_classifier, least_share


def mixture(shares, n=6000, seed=0):
    """Return a corpus of good points around 0 and noise around (3, 0) and (0, 3), examples of both, and the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, n, p=[1 - sum(shares), *shares])
    middles = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    corpus = rng.normal(middles[labels])
    return corpus, [rng.normal(middles[kind], size=(2000, 2)) for kind in (1, 2)], labels


@pytest.mark.parametrize("shares", [(0.05, 0.1), (0.2, 0.02)])
def test_the_shares_of_noise_are_found_and_noise_is_told_apart(shares):
    corpus, noise, labels = mixture(shares)
    fit = fit_classifier(corpus, noise, 0)
    np.testing.assert_allclose(fit.shares, shares, atol=0.02)
    found = fit.classifier.posteriors(corpus).argmax(1)
    assert (found == labels).mean() > 0.96


def test_a_corpus_without_noise_keeps_nearly_all():
    corpus, noise, _ = mixture((0.0, 0.0))
    fit = fit_classifier(corpus, noise, 0)
    assert max(fit.shares) < 0.01
    assert (fit.classifier.posteriors(corpus)[:, 0] < 0.5).mean() < 0.01


def test_posteriors_are_probabilities_and_the_same_again():
    corpus, noise, _ = mixture((0.1, 0.1), n=1000)
    first, second = (fit_classifier(corpus, noise, 7).classifier.posteriors(corpus) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first.sum(1), 1)
    assert first.min() >= 0


def test_a_share_is_bounded_where_noise_is_frequent():
    rng = np.random.default_rng(1)
    noise = rng.uniform(0.9, 1.0, 1000)
    corpus = np.concatenate([rng.uniform(0.9, 1.0, 200), rng.uniform(0, 0.9, 1800)])
    assert 0.1 <= least_share(corpus, noise) < 0.13


def test_shares_correct_the_answers_for_the_examples_of_other_shares():
    likelihoods = np.array([[0.9, 0.1]] * 80 + [[0.1, 0.9]] * 20)
    shares = class_shares(likelihoods, np.array([0.5, 0.5]))
    np.testing.assert_allclose(shares, [0.875, 0.125], atol=1e-3)  # by hand: 0.9 s + 0.1 (1 − s) = 0.8
