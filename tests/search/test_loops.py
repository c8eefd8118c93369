"""What repeats itself: found as a definition in loops finds it, and never written where it is not allowed."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.batch import make_batch
from regard.engine.plain import PlainDecoder
from regard.padding import EOS
from regard.search import SEARCH
from regard.search.hypothesis import LONGEST_BLOCK, USUAL, allowed_run, is_loop, longest_run, make_hypothesis, ranked
from regard.search.loops import LoopFreeDecoder, looping_tokens
from tests.search.models import FAMILIES, Constant, find, make_model, same, settings

A, B = 4, 5
SOURCES = [[A, B], [B, B, A], [A] * 9]
LIMIT = 8
EVERYTHING = 2 ** (LIMIT + 1) - 1  # all that two words can say in 8 tokens, ended or not


def run_by_loops(ids):
    """Tries every stretch: is it a block, again and again?"""
    most = 1.0
    for start, stop in product(range(len(ids)), range(len(ids) + 1)):
        stretch = ids[start:stop]
        for period in range(1, min(LONGEST_BLOCK, len(stretch) // 2) + 1):
            if all(stretch[i] == stretch[i - period] for i in range(period, len(stretch))):
                most = max(most, len(stretch) / period / (2 if period == 1 else 1))
    return most


@given(st.lists(st.integers(4, 6), max_size=12))
def test_the_longest_run_is_that_of_the_definition(ids):
    assert longest_run(ids) == pytest.approx(run_by_loops(ids))


@given(st.lists(st.integers(4, 6), max_size=14), st.sampled_from([1.5, 2.0, 3.0]))
def test_a_token_is_banned_just_where_it_would_repeat_too_much(ids, allowed):
    written = ids
    while longest_run(written) > allowed:
        written = written[:-1]
    banned = {token for token in (4, 5, 6) if longest_run([*written, token]) > allowed}
    assert looping_tokens(written, allowed) == banned


def test_blocks_are_counted_as_people_do():
    assert longest_run([]) == longest_run([A]) == longest_run([A, B]) == 1
    assert longest_run([A, B, A, B, A, B, A]) == 3.5
    assert longest_run([A] * 6) == 3, "of a single token half is counted"
    block = list(range(4, 4 + LONGEST_BLOCK))
    assert longest_run(block * 2) == 2 and longest_run([*block, 99] * 2) == 1, "longer blocks are not looked for"


def test_a_source_that_repeats_itself_has_such_a_target():
    assert allowed_run([A, B]) == USUAL
    assert allowed_run([A, B] * 5) == 6
    assert not is_loop([A, B] * 5, [A, B] * 6) and is_loop([A, B] * 5, [A, B] * 7)
    assert not is_loop([A, B], [A, B] * 3) and is_loop([A, B], [A, B] * 4)


def loop_free(model, sources, prefix=None, **changes):
    chosen = settings(limit=LIMIT, **changes)
    return SEARCH[chosen.method](LoopFreeDecoder(PlainDecoder(model)), sources, chosen, prefix)


def brute_force(model, source):
    """Scores every sequence that is allowed by teacher forcing, best first."""
    longest = [list(words) for words in product((A, B), repeat=LIMIT)]
    with torch.inference_mode():
        said = model(make_batch([source] * len(longest), longest)).log_softmax(-1)
    found = {}
    for words, log_probs in zip(longest, said, strict=True):
        for n in range(1, LIMIT + 1):
            tokens = [*words[:n], EOS][:LIMIT]
            if not is_loop(source, words[:n]):
                found[tuple(tokens)] = make_hypothesis(tokens, log_probs[range(len(tokens)), tokens].tolist(), 1.0)
    return ranked(list(found.values()), len(found))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_a_full_beam_finds_the_best_that_does_not_repeat_itself(family, seed):
    model = make_model(family, seed, vocab_size=6)
    expected = [brute_force(model, source)[:5] for source in SOURCES]
    same(loop_free(model, SOURCES, beam=EVERYTHING, n_best=5), expected)
    alone = [loop_free(model, [source], beam=EVERYTHING, n_best=5)[0] for source in SOURCES]
    same(alone, expected)


@pytest.mark.parametrize(("method", "changes"), [("greedy", {}), ("beam", {"beam": 3}), ("sample", {"seed": 5})])
def test_what_would_go_on_for_ever_does_not(method, changes):
    model = Constant([0.0, 0.0, 0.0, -9.0, 3.0, 1.0, 0.0])  # likes to say A
    (found,) = find(model, [[B]], method=method, limit=40, **changes)
    (other,) = SEARCH[method](
        LoopFreeDecoder(PlainDecoder(model)), [[B]], settings(method=method, limit=40, **changes), None
    )
    assert is_loop([B], found[0].ids) and not is_loop([B], other[0].ids)


def test_a_target_does_not_end_before_it_began():
    model = Constant([0.0, 0.0, 0.0, 9.0, 3.0, 1.0, 0.0])  # likes to end
    assert find(model, [[B]], method="greedy")[0][0].ids == []
    assert loop_free(model, [[B]], method="greedy")[0][0].ids == [A]


def test_what_does_not_repeat_itself_stays_as_it_is():
    model = make_model(seed=7, vocab_size=17)
    free = find(model, SOURCES, method="greedy", limit=LIMIT)
    untouched = [i for i, one in enumerate(free) if one[0].ids and not is_loop(SOURCES[i], one[0].ids)]
    assert untouched, "these models repeat themselves whatever they read"
    same([loop_free(model, SOURCES, method="greedy")[i] for i in untouched], [free[i] for i in untouched])


def test_a_forced_prefix_may_repeat_itself():
    model = make_model(vocab_size=6)
    ((found,),) = loop_free(model, [[B]], [[A] * 7], method="greedy")
    assert found.ids[:7] == [A] * 7


def test_log_probabilities_of_what_is_allowed_are_the_models():
    decoder = PlainDecoder(make_model(vocab_size=6))
    free, _ = decoder.log_probs(np.array([2]), decoder.start([[A]], 1), None)
    loop_free = LoopFreeDecoder(decoder)
    bound, _ = loop_free.log_probs(np.array([2]), loop_free.start([[A]], 1), None)
    assert bound[0, EOS] == -np.inf and (bound[0, A:] == free[0, A:]).all()
