"""Links of two directions are joined: laws, a case by hand, and another way to write the same."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.trace.symmetrise import NEIGHBOURS, SYMMETRISE, grow_diag, grow_diag_final_and

LINKS = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(LINKS, LINKS)
def test_from_the_intersection_to_the_union(forward, backward):
    found = {name: join(forward, backward) for name, join in SYMMETRISE.items()}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    assert found["intersection"] <= found["grow-diag"] <= found["grow-diag-final-and"] <= found["union"]


@given(LINKS)
def test_where_both_agree_nothing_is_left_to_decide(links):
    for join in SYMMETRISE.values():
        assert join(links, links) == links


@given(LINKS, LINKS)
def test_what_is_given_is_not_changed(forward, backward):
    before = {*forward}, {*backward}
    for join in SYMMETRISE.values():
        join(forward, backward)
    assert (forward, backward) == before


@given(LINKS, LINKS)
def test_at_last_no_two_words_of_a_link_are_both_without_one(forward, backward):
    found = grow_diag_final_and(forward, backward)
    sources, targets = {i for i, _ in found}, {j for _, j in found}
    assert all(i in sources or j in targets for i, j in forward | backward)


def test_growing_by_hand():
    forward = {(0, 0), (1, 1), (2, 1), (4, 4)}
    backward = {(0, 0), (1, 1), (1, 2), (5, 3), (4, 5)}
    assert grow_diag(forward, backward) == {(0, 0), (1, 1), (2, 1), (1, 2)}
    # (4, 4) joins two free words, then (4, 5) has one that is taken, and (5, 3) none
    assert grow_diag_final_and(forward, backward) == {(0, 0), (1, 1), (2, 1), (1, 2), (4, 4), (5, 3)}


def reference(forward, backward, n=6):
    """Says it as the paper's code does: over a table of words, cell by cell."""

    def free(link):
        return [not any((link[0], k) in links for k in range(n)), not any((k, link[1]) in links for k in range(n))]

    links, before = forward & backward, None
    while before != links:
        before = {*links}
        for (i, j), (a, b) in product(sorted(before), NEIGHBOURS):
            near = (i + a, j + b)
            links |= {near} if near in forward | backward and any(free(near)) else set()
    for link in (*sorted(forward), *sorted(backward)):
        links |= {link} if all(free(link)) else set()
    return links


@given(LINKS, LINKS)
def test_growing_is_what_the_paper_s_code_does(forward, backward):
    assert grow_diag_final_and(forward, backward) == reference(forward, backward)


def test_names():
    assert list(SYMMETRISE) == ["intersection", "union", "grow-diag", "grow-diag-final-and"]
    with pytest.raises(KeyError):
        SYMMETRISE["grow"]
