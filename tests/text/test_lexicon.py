"""Word translation by counting: equal to the plain definition, and right where there is one answer."""

import numpy as np
import pytest

from regard.text.lexicon import Links, best_targets, translation_chances

SRC = [[1, 2], [2, 3], [1, 3], [2], [1, 2, 2]]
TGT = [[11, 12], [13, 12], [11, 13, 14], [12, 14], []]
NOTHING = 4


def by_definition(src, tgt, rounds):
    """Gives t(target | source) by loops over sentences, pieces and links."""
    chances = {(s, t): 1.0 for S, T in zip(src, tgt, strict=True) for s in (NOTHING, *S) for t in T}
    for _ in range(rounds):
        counts, totals = dict.fromkeys(chances, 0.0), {}
        for S, t in ((S, t) for S, T in zip(src, tgt, strict=True) for t in T):
            total = sum(chances[s, t] for s in (NOTHING, *S))
            for s in (NOTHING, *S):
                counts[s, t] += chances[s, t] / total
                totals[s] = totals.get(s, 0.0) + chances[s, t] / total
        chances = {(s, t): count / totals[s] for (s, t), count in counts.items()}
    return chances


@pytest.mark.parametrize("rounds", [0, 1, 2, 7])
def test_chances_equal_the_definition(rounds):
    links = Links(SRC, TGT, NOTHING)
    kinds = zip(links.src.tolist(), links.tgt.tolist(), strict=True)
    found = dict(zip(kinds, translation_chances(links, rounds), strict=True))
    expected = by_definition(SRC, TGT, rounds)
    assert found.keys() == expected.keys()
    assert np.allclose([found[pair] for pair in expected], list(expected.values()))


def test_a_planted_dictionary_is_found():
    draw = np.random.default_rng(0)
    src = [draw.permutation(40)[: draw.integers(1, 7)].tolist() for _ in range(400)]
    tgt = [draw.permutation([100 + piece for piece in ids]).tolist() for ids in src]
    links = Links(src, tgt, nothing=40)
    table = best_targets(links, translation_chances(links), 40, 3)
    assert table[:, 0].tolist() == [100 + piece for piece in range(40)]


def test_the_best_come_first_and_gaps_are_told():
    links = Links([[0], [0], [1]], [[5], [5, 6], []], nothing=3)
    table = best_targets(links, translation_chances(links), 3, 3)
    assert table.tolist() == [[5, 6, -1], [-1, -1, -1], [-1, -1, -1]]
