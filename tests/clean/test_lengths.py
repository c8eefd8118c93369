"""The law of lengths: the middle and spread of a corpus, whatever a minority says."""

import random

import pytest

from regard.clean.lengths import LIMIT, NARROWEST, fit_lengths


def lengths(n, ratio, rng):
    return [(k := rng.randint(5, 80), max(1, round(k * ratio * rng.uniform(0.9, 1.1)))) for _ in range(n)]


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_the_ratio_of_any_two_languages_is_found(ratio):
    law = fit_lengths(lengths(2000, ratio, random.Random(1)))
    assert law.surprise(40, round(40 * ratio)) < 1
    assert law.surprise(40, round(400 * ratio)) > LIMIT
    assert law.surprise(400, round(40 * ratio)) > LIMIT


def test_a_fifth_of_noise_moves_the_law_little():
    rng = random.Random(2)
    clean = lengths(2000, 2.0, rng)
    noisy = clean + [(rng.randint(5, 80), rng.randint(5, 80)) for _ in range(500)]
    for n in (6, 20, 60):
        assert fit_lengths(noisy).surprise(n, 2 * n) < 1
        assert fit_lengths(noisy).surprise(n, 16 * n) > LIMIT


def test_few_pairs_say_little():
    law = fit_lengths([(5, 5)] * 3)
    assert law.surprise(10, 40) < LIMIT < law.surprise(10, 1000)
    assert min(fit_lengths([(7, 7)] * 100).spreads) == NARROWEST


def test_empty_and_huge_sides_have_a_place():
    law = fit_lengths([])
    assert law.surprise(0, 0) == 0
    assert law.surprise(10**7, 10**7) < 1
