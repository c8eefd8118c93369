"""Passages: windows cover everything, every answer is whole in one, and spans survive the way to pieces and back."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.passages import (
    ASKED,
    NOT_HERE,
    READ,
    SHARED,
    Passage,
    WindowSettings,
    check_windows,
    cut_passage,
    make_passage,
    shared_pieces,
    starts,
    to_characters,
    to_pieces,
)
from regard.text.tokenizer import Tokenizer

from ..readers import WINDOWS, questions, tokenizer


@given(n=st.integers(1, 200), room=st.integers(1, 40), stride=st.integers(1, 40))
def test_windows_cover_every_piece_and_none_is_needless(n, room, stride):
    found = list(starts(n, room, min(stride, room)))
    assert {place for start in found for place in range(start, min(start + room, n))} == set(range(n))
    assert all(start + room < n for start in found[:-1])


@given(st.data())
def test_every_answer_is_whole_in_a_window_and_labelled_nowhere_else(data):
    n = data.draw(st.integers(1, 120))
    asked = list(range(100, 100 + data.draw(st.integers(1, WINDOWS.question))))
    first = data.draw(st.integers(0, n - 1))
    last = min(first + data.draw(st.integers(0, WINDOWS.longest - 1)), n - 1)
    passage = Passage(asked, list(range(1000, 1000 + n)), [], [READ] * n, (first, last))
    windows = cut_passage(passage, 0, WINDOWS)
    here = [window for window in windows if window.label != NOT_HERE]
    assert here
    for window in windows:
        assert len(window.ids) + 1 <= WINDOWS.size
        whole = window.first <= first and last < window.first + window.n_read
        assert (window.label != NOT_HERE) == whole
        assert window.ids[: window.offset] == [Tokenizer.bos_id, *asked, Tokenizer.eos_id]
        assert [mark == ASKED for mark in window.marks] == [place < window.offset for place in range(len(window.ids))]
    for window in here:
        begin, end = window.label
        assert window.ids[begin : end + 1] == list(range(1000 + first, 1000 + last + 1))


@pytest.mark.parametrize("language", ["zh", "en"])
def test_a_span_survives_the_way_to_pieces_and_back(language):
    for question in questions(language):
        passage = make_passage(question, tokenizer(language), WINDOWS)
        (answer,) = question.answers
        begin, stop = to_characters(passage.spans, passage.label)
        # Pieces may be longer than the answer, never shorter, and no fewer of them would do.
        assert begin <= answer.start < answer.stop <= stop
        first, last = passage.label
        assert passage.spans[first][1] > answer.start
        assert passage.spans[last][0] < answer.stop


@pytest.mark.parametrize("language", ["zh", "en"])
def test_every_stretch_of_pieces_comes_back_as_itself(language):
    passage = make_passage(questions(language)[0], tokenizer(language), WINDOWS)
    text = questions(language)[0].context
    for first in range(len(passage.ids)):
        for last in range(first, min(first + 4, len(passage.ids))):
            characters = to_characters(passage.spans, (first, last))
            again = to_pieces(passage.spans, characters)
            assert to_characters(passage.spans, again) == characters
            assert text[slice(*characters)]


def test_pieces_that_the_question_has_are_marked():
    asked, read = ["▁西安", "▁Ox", "ford", "？"], ["▁西", "安", "北", "▁Ox", "ford", "or", "？", "。"]
    assert shared_pieces(asked, read, "西安 Oxford？") == [True, True, False, True, True, False, False, False]
    passage = make_passage(questions("zh")[1], tokenizer("zh"), WINDOWS)
    text, marks = questions("zh")[1].context, passage.marks
    spelled = {text[slice(*span)] for span, mark in zip(passage.spans, marks, strict=True) if mark == SHARED}
    assert spelled
    assert all(piece in questions("zh")[1].text for piece in spelled)


def test_a_question_that_is_too_long_loses_its_end():
    short = replace(WINDOWS, question=3)
    assert len(make_passage(questions()[0], tokenizer(), short).asked) == 3


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"stride": 18}, "at most .* = 17, got 18"), ({"size": 20}, "= 0, got 7"), ({"longest": 0}, "longest=0")],
)
def test_windows_between_which_answers_would_be_lost_are_refused(wrong, said):
    check_windows(WindowSettings())
    check_windows(replace(WINDOWS, stride=17))
    with pytest.raises(ValueError, match=said):
        check_windows(replace(WINDOWS, **wrong))
