"""Beam search against greedy search and against all that can be said."""

from itertools import product

import pytest
import torch

from regard.batch import make_batch
from regard.padding import EOS
from regard.search.hypothesis import make_hypothesis, ranked
from tests.search.models import (
    FAMILIES,
    SOURCES,
    WORDS,
    Constant,
    Counting,
    find,
    make_model,
    same,
    teacher_forced,
)

LIMIT = 4
EVERYTHING = sum(len(WORDS) ** n for n in range(LIMIT + 1))  # all that can be said in 4 tokens, ended or not
PENALTIES = [-0.7, 0.0, 0.6, 1.0, 2.5]


def brute_force(model, source, length_penalty):
    """Scores every sequence by teacher forcing, best first."""
    longest = [list(words) for words in product(WORDS, repeat=LIMIT)]
    with torch.inference_mode():
        said = model(make_batch([source] * len(longest), longest)).log_softmax(-1)
    found = {}
    for words, log_probs in zip(longest, said, strict=True):
        for n in range(LIMIT + 1):
            tokens = [*words[:n], EOS][:LIMIT]
            gains = log_probs[range(len(tokens)), tokens].tolist()
            found[tuple(tokens)] = make_hypothesis(tokens, gains, length_penalty)
    assert len(found) == EVERYTHING
    return ranked(list(found.values()), EVERYTHING)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length_penalty", PENALTIES)
@pytest.mark.parametrize("seed", range(3))
def test_a_full_beam_finds_what_brute_force_finds(family, length_penalty, seed):
    model, sources = make_model(family, seed), SOURCES[seed : seed + 2]
    expected = [brute_force(model, source, length_penalty) for source in sources]
    for n_best in (1, 3, EVERYTHING):
        chosen = {"beam": EVERYTHING, "n_best": n_best, "length_penalty": length_penalty, "limit": LIMIT}
        same(find(model, sources, **chosen), [some[:n_best] for some in expected])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("seed", range(2))
def test_a_beam_of_one_is_greedy(family, length_penalty, seed):
    model = make_model(family, seed, vocab_size=13)
    prefix = [[4], [], [7, 8], [], [], []]
    for forced in (None, prefix):
        chosen = {"length_penalty": length_penalty, "limit": 6}
        one = find(model, SOURCES, forced, method="beam", beam=1, **chosen)
        same(one, find(model, SOURCES, forced, method="greedy", **chosen))


def plain_beam(model, source, settings):
    """Says in loops over sequences, without a cache, what a beam search is."""
    live, ends = [([], [])], []
    for _ in range(settings["limit"]):
        following = []
        for tokens, gains in live:
            said = teacher_forced(model, source, tokens)[-1].tolist()
            following += [([*tokens, token], [*gains, said[token]]) for token in (EOS, *range(4, len(said)))]
        following.sort(key=lambda each: -sum(each[1]))
        ends += [each for each in following[: settings["beam"]] if each[0][-1] == EOS]
        live = [each for each in following if each[0][-1] != EOS][: settings["beam"]]
        if len(ends) >= settings["beam"]:
            live = []
            break
    found = [make_hypothesis(*each, settings["length_penalty"]) for each in ends + live]
    return ranked(found, settings["n_best"])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
@pytest.mark.parametrize("beam", [2, 4])
def test_a_narrow_beam_finds_what_loops_find(family, length_penalty, beam):
    model, sources = make_model(family, seed=beam, vocab_size=11), SOURCES[:2]
    chosen = {"beam": beam, "n_best": beam, "length_penalty": length_penalty, "limit": 5}
    found = find(model, sources, **chosen)
    same(found, [plain_beam(model, source, chosen) for source in sources])


def test_hypotheses_of_a_sentence_are_all_different():
    for found in find(make_model(seed=3, vocab_size=13), SOURCES, beam=7, n_best=7, limit=6):
        assert len({(tuple(each.ids), each.finished) for each in found}) == 7


@pytest.mark.parametrize(
    ("length_penalty", "steps"),
    # p(EOS) = 0.9, p(word) = 0.05 twice. Ends: 0.9, then 0.045, …; a live one has log 0.05 ≈ −3.0 after a step.
    # Without a penalty nothing beats log 0.9 ≈ −0.11 after one step; with penalty 3 and 6 tokens −3.0 / 6³ might.
    [(0.0, 1), (-1.0, 1), (1.0, 1), (3.0, 2)],
)
def test_a_search_stops_when_nothing_better_can_come(length_penalty, steps):
    words = torch.tensor([1e-9, 1e-9, 1e-9, 0.9, 0.05, 0.05]).log().tolist()
    model = Counting(Constant(words))
    found = find(model, [[4]], beam=3, n_best=1, length_penalty=length_penalty, limit=6)
    assert len(model.rows) == steps
    assert found[0][0].finished


NEVER = [1e-9] * 3
# What ends now, at −0.92 and at −0.99, is worse than what goes on at −0.51 and −0.69 and ends with the next token.
GOES_ON = [
    ([[*NEVER, 0.4, 0.6], [*NEVER, 1.0, 1e-9]], [4]),
    ([[*NEVER, 1e-9, 1.0], [*NEVER, 0.37, 0.5], [*NEVER, 1.0, 1e-9]], [4, 4]),
]


@pytest.mark.parametrize(("chances", "best"), GOES_ON)
def test_a_search_that_prefers_the_short_goes_on_while_the_next_token_may_end_better(chances, best):
    model = Constant(torch.tensor(chances, dtype=torch.float64).log().tolist())
    found = find(model, [[4]], beam=4, n_best=1, length_penalty=-0.5, limit=9)
    assert found[0][0].ids == best


def test_a_search_stops_when_as_many_have_ended_as_the_beam_is_wide():
    words = torch.tensor([1e-9, 1e-9, 1e-9, 0.4, 0.3, 0.3]).log().tolist()
    model = Counting(Constant(words))
    find(model, [[4]], beam=3, n_best=3, length_penalty=9.0, limit=50)
    assert len(model.rows) < 5


def test_an_end_counts_only_among_the_best_continuations():
    # EOS is third of three: a beam of two never ends, a beam of three does.
    words = torch.tensor([1e-9, 1e-9, 1e-9, 0.2, 0.41, 0.39]).log().tolist()
    assert not find(Constant(words), [[4]], beam=2, limit=5)[0][0].finished
    assert find(Constant(words), [[4]], beam=3, limit=5)[0][0].finished


def test_a_vocabulary_smaller_than_the_beam_leaves_places_empty():
    model = Constant([0.0, 0.0, 0.0, 0.1, 0.3])
    found = find(model, [[4]], beam=5, n_best=5, limit=2)[0]
    assert [(each.ids, each.finished) for each in found] == [([4], True), ([], True), ([4, 4], False)]


def test_with_nothing_to_say_but_the_end_it_ends():
    found = find(Constant([0.0, 0.0, 0.0, 0.1]), [[1]], beam=3, n_best=3, limit=4)[0]
    assert [(each.ids, each.finished) for each in found] == [([], True)]
