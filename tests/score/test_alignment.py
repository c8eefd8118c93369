"""Links in Pharaoh's form, and the error rate of found ones by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.score.alignment import Gold, as_pharaoh, check_gold, read_gold, score_alignment

LINKS = st.frozensets(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


def test_sure_and_possible_links_are_told_apart():
    (first, second, third) = read_gold(["0-0 1?2 2p1 10-3", "", " 0-1\t1-0 "], "gold")
    assert first.sure == {(0, 0), (10, 3)}
    assert first.possible == {(0, 0), (10, 3), (1, 2), (2, 1)}
    assert second == Gold(frozenset(), frozenset())
    assert third.sure == third.possible == {(0, 1), (1, 0)}
    (both,) = read_gold(["0?0 0-0"], "gold")
    assert both.sure == both.possible == {(0, 0)}


@given(LINKS)
def test_what_is_written_is_read(links):
    (found,) = read_gold([as_pharaoh(links)], "gold")
    assert found.sure == found.possible == links


def test_links_are_written_in_the_order_of_the_source():
    assert as_pharaoh({(10, 1), (2, 3), (2, 0)}) == "2-0 2-3 10-1"


@pytest.mark.parametrize("link", ["1", "1-", "a-b", "1--2", "-1-2", "1-2-3", "1:2", "1.0-2"])
def test_what_is_no_link_is_named_with_its_line(link):
    with pytest.raises(ValueError, match=rf"gold\.txt, line 2: a link must be written i-j .* got '{link}'"):
        read_gold(["0-0", f"0-0 {link}"], "gold.txt")


def test_the_error_rate_by_hand():
    # A has 3 links, 1 of them sure, 1 more possible; S has 2: 1 − (1 + 2) / (3 + 2)
    gold = [Gold(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)}))]
    found = score_alignment([{(0, 0), (2, 1), (2, 2)}], gold)
    assert (found.aer, found.precision, found.recall) == pytest.approx((0.4, 2 / 3, 1 / 2))
    assert (found.n_links, found.n_sure, found.n) == (3, 2, 1)


def test_counts_are_added_over_pairs():
    sure = Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))
    found = score_alignment([{(0, 0)}, {(1, 1)}], [sure, sure])
    assert (found.aer, found.precision, found.recall, found.n) == (0.5, 0.5, 0.5, 2)


@given(st.lists(LINKS, max_size=4))
def test_gold_links_have_no_errors_and_others_have_all(links):
    gold = [Gold(each, each) for each in links]
    assert score_alignment(links, gold).aer == 0.0
    others = [{(i + 100, j) for i, j in each} for each in links]
    assert score_alignment(others, gold).aer == (1.0 if any(links) else 0.0)


def test_of_no_links_none_is_wrong():
    gold = [Gold(frozenset({(0, 0)}), frozenset({(0, 0)}))]
    found = score_alignment([set()], gold)
    assert (found.aer, found.precision, found.recall) == (1.0, 1.0, 0.0)
    assert score_alignment([], []).aer == 0.0


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="one line of gold links for each pair, got 0 for 1"):
        score_alignment([set()], [])
    check_gold(Gold(frozenset(), frozenset({(1, 2)})), 2, 3, "pair 1")
    with pytest.raises(ValueError, match=r"pair 7: links must join words 0 … 1 to words 0 … 2, got 2-0: .* from 0"):
        check_gold(Gold(frozenset(), frozenset({(1, 2), (2, 0)})), 2, 3, "pair 7")
