"""Exact match and F1 by the rules of SQuAD and of CMRC 2018: hand-computed cases."""

import pytest

from regard.score.answers import RULES, common_stretch, plain_words, rules_for, score_answers, segments


@pytest.mark.parametrize(
    ("given", "right", "exact", "f1"),
    [
        ("The Norman dynasty!", "norman dynasty", True, 1.0),
        ("in Oslo", "Oslo", False, 2 / 3),  # 1 of 2 and 1 of 1
        ("a b b c", "b b b", False, 2 * (2 / 3) * (2 / 3) / (4 / 3)),  # the article goes; 2 of 3 and 2 of 3
        ("Köln", "koln", False, 0.0),
        ("don't", "dont", True, 1.0),  # punctuation leaves no space
        ("east, west", "west east", False, 1.0),  # F1 knows no order
        ("the", "a", True, 0.0),  # nothing is left of either
        ("theatre", "atre", False, 0.0),  # an article is a whole word
    ],
)
def test_squad(given, right, exact, f1):
    assert RULES["squad"].exact(given, right) == exact
    assert RULES["squad"].f1(given, right) == pytest.approx(f1)


@pytest.mark.parametrize(
    ("given", "right", "exact", "f1"),
    [
        ("《战国无双3》", "战国无双3", True, 1.0),
        ("光荣和ω-force", "光荣和ωforce。", True, 1.0),
        ("在1913年", "1913年", False, 4 / 5),  # segments 在·1913·年 and 1913·年: 2 of 3 and 2 of 2
        ("abXcd", "ab cd", False, 0.0),  # words: abxcd, and ab, cd
        ("西安北京", "北京西安", False, 1 / 2),  # a stretch without a gap: 2 of 4
        ("甲乙丙", "甲丁丙", False, 1 / 3),  # not a subsequence, which would have 2
        ("New York 市", "new york市", False, 1.0),  # spaces stay in exact match
        ("3.5万", "3,5万", False, 1 / 2),
        ("甲", "乙", False, 0.0),
    ],
)
def test_cmrc(given, right, exact, f1):
    assert RULES["cmrc"].exact(given, right) == exact
    assert RULES["cmrc"].f1(given, right) == pytest.approx(f1)


def test_the_nearest_of_several_right_answers_counts_and_scores_are_means_in_percent():
    found = score_answers(["Oslo", "in Rome"], [["Bergen", "Oslo"], ["Rome"]], "squad")
    assert (found.exact, found.n, found.rules) == (50.0, 2, "squad")
    assert found.f1 == pytest.approx(100 * (1 + 2 / 3) / 2)


def test_words_and_segments():
    assert plain_words("A man,  the Man (an  ant)") == ["man", "man", "ant"]
    assert segments("公元前202年，ABC-def 约3.14·万!") == [*"公元前", "202", "年", "abcdef", "约", "3.14", "万", "!"]


def test_the_common_stretch_is_the_longest_there_is():
    one, other = "xabcabyab", "zabyabcq"
    brute = max(n for n in range(len(one)) for i in range(len(one) - n + 1) if one[i : i + n] in other)
    assert common_stretch(one, other) == common_stretch(other, one) == brute == 5
    assert common_stretch("", "abc") == 0


def test_the_script_names_the_rules():
    assert rules_for(["西安是陕西省的省会。", "Xi'an"] * 2 + ["长安"]) == "cmrc"
    assert rules_for(["Xi'an is a city.", "Köln"]) == "squad"


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(ValueError, match="got 1 and 2"):
        score_answers(["a"], [["a"], ["b"]], "squad")
    with pytest.raises(ValueError, match="unknown rules 'bleu'"):
        score_answers(["a"], [["a"]], "bleu")
