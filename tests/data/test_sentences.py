"""Texts are cut where sentences end, into parts that a model reads, in time linear in their length."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.normalise import normalise
from regard.data.sentences import split_parts, split_sentences
from regard.data.words import join_words

CASES = [
    "One. |Two! |Three? |Four; five",
    "他来了。|她走了！|真的吗？|是；不是",
    "It is 3.14 at a.m.now. |Yes",
    "“去吧！”|他说。|好",
    'He said "go!" |Then left...  |So',
    "first line\n\n |second line",
    "all small letters. |nobody minds! |do you? |no",
    "Mr. Smith met Dr. J. F. Kennedy of the U.S. Army. |He left at 5 p.m. |The end.",
    "See No. 5 and Fig. 3. |No. |He did not. |So am I. |She too.",
    "Animals, e.g. Cats, i.e. not dogs, vs. Men, approx. five, Acme Inc. of Ohio etc. |The rest.",
    "Wait... what? |“Go!” he said. |(He did.) |“Why?” |Nobody knows.",
    "1. First things first. |2. Then others, since 1999. |That is all.",
    "好吗?|我走了!|汤姆来了.|再见 v1.2.3",
    "嗯……|我不知道。|「真的？」|她问。",
    "क्या हाल है।|ठीक है",
    "Well . . . no. . . . !? |Yes",
    "... ... ...",
    "no end",
]


@pytest.mark.parametrize("case", CASES, ids=[case[:12] for case in CASES])
def test_texts_are_cut_where_sentences_end(case):
    assert split_sentences(case.replace("|", "")) == case.split("|")


def test_nothing_has_no_sentences():
    assert split_sentences("") == []


def test_a_sentence_that_is_too_long_is_cut_at_commas_into_few_parts():
    parts = split_parts("Short. one, two, three, four, five. 一，二，三", len, 12)
    assert [part.text for part in parts] == ["Short.", "one, two,", "three,", "four, five.", "一，二，三"]
    assert [part.gap for part in parts] == [" ", " ", " ", " ", ""]
    assert not any(part.forced for part in parts)


def test_without_commas_it_is_cut_at_spaces_and_else_anywhere_but_within_a_character():
    spaced = split_parts("aaa bbb ccc ddd", len, 8)
    assert [(part.text, part.gap, part.forced) for part in spaced] == [("aaa bbb", " ", True), ("ccc ddd", "", False)]
    dense = split_parts("x" * 25, len, 10)
    assert "".join(part.text for part in dense) == "x" * 25
    assert [part.forced for part in dense] == [True] * (len(dense) - 1) + [False]
    marked = split_parts("e\u0301\u0302" * 9 + "👩\u200d👩\u200d👧" * 4, len, 7)
    assert not [part for part in marked if part.text[0] in "\u0301\u0302\u200d" or part.text[-1] == "\u200d"]


@given(st.text(alphabet='abI ,.!。，…你\n"3\u0301', max_size=80), st.integers(1, 20), st.booleans())
def test_joined_again_the_parts_are_the_text_and_none_is_too_long(text, max_len, by_sentence):
    assert "".join(split_sentences(text)) == text
    parts = split_parts(text, len, max_len, by_sentence)
    assert "".join(part.text + part.gap for part in parts).split() == text.split()
    assert all(len(part.text) <= max_len for part in parts)
    assert not by_sentence or sum(part.gap.count("\n") for part in parts) == text.count("\n")


MARKS = "".join(chr(0x300 + (7 * n) % 0x45) for n in range(200))
COSTLY = {
    "dots": ".",
    "spaced dots": ". ",
    "commas": ",",
    "clauses": "a, ",
    "sentences": "。你",
    "lines": "\n",
    "closing": "。”",
    "spaces": "a" + " " * 199,
    "marks": MARKS,
    "letters": "b",
    "initials": "A. ",
    "quotes": '" ',
}


def cpu_seconds(function, text):
    """Return the less of two: what else the machine does can only add to it."""
    times = []
    for _ in range(2):
        begin = time.process_time()
        function(text)
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("unit", COSTLY.values(), ids=list(COSTLY))
@pytest.mark.parametrize(
    "function",
    [split_sentences, normalise, join_words, lambda text: split_parts(text, len, 128)],
    ids=["sentences", "normalise", "words", "parts"],
)
def test_the_time_grows_with_the_length_and_not_with_its_square(function, unit):
    short, long = (cpu_seconds(function, "a" + unit * (n // len(unit))) for n in (4_000, 16_000))
    assert long < 9 * short + 0.005, "four times the length takes four times as long, and sixteen times by a square"
