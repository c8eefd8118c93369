"""Passages: windows cover everything, every answer is whole in one, and spans survive the way to pieces and back.

Questions are read as they stand, and what is wrong in a file is named with its line.
"""

import json
import lzma
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizer import Tokenizer
from regard.qa.data import (
    CONTEXT,
    FACTS,
    NO_ANSWER,
    QUESTION,
    SHARED,
    Answer,
    Passage,
    WindowSettings,
    check_windows,
    cut_passage,
    make_facts,
    make_passage,
    make_question,
    read_questions,
    shared_pieces,
    split_questions,
    starts,
    to_characters,
    to_pieces,
)
from tests.readers import WINDOWS, questions, tokenizer


@given(n=st.integers(1, 200), room=st.integers(1, 40), stride=st.integers(1, 40))
def test_windows_cover_every_piece_and_none_is_needless(n, room, stride):
    result = list(starts(n, room, min(stride, room)))
    assert {place for start in result for place in range(start, min(start + room, n))} == set(range(n))
    assert all(start + room < n for start in result[:-1])


@given(st.data())
def test_every_answer_is_whole_in_a_window_and_labelled_nowhere_else(data):
    n = data.draw(st.integers(1, 120))
    asked = list(range(100, 100 + data.draw(st.integers(1, WINDOWS.question))))
    first = data.draw(st.integers(0, n - 1))
    last = min(first + data.draw(st.integers(0, WINDOWS.longest - 1)), n - 1)
    passage = Passage(asked, list(range(1000, 1000 + n)), [], [CONTEXT] * n, (first, last))
    windows = cut_passage(passage, 0, WINDOWS)
    here = [window for window in windows if window.label != NO_ANSWER]
    assert here
    for window in windows:
        assert len(window.ids) + 1 <= WINDOWS.size
        whole = window.first <= first and last < window.first + window.n_context
        assert (window.label != NO_ANSWER) == whole
        assert window.ids[: window.offset] == [Tokenizer.bos_id, *asked, Tokenizer.eos_id]
        assert [mark == QUESTION for mark in window.marks] == [
            place < window.offset for place in range(len(window.ids))
        ]
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
            begin, stop = to_characters(passage.spans, (first, last))
            again = to_pieces(passage.spans, (begin, stop))
            # A piece that is only a space has the first character of the next one, and then both are meant.
            assert to_characters(passage.spans, again) == (begin, max(stop, passage.spans[again[1]][1]))
            assert again[0] <= first <= last <= again[1]
            assert text[begin:stop]


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
    assert len(make_passage(questions()[0], tokenizer(), short).question) == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"stride": 18}, "at most .* = 17, got 18"), ({"size": 20}, "= 0, got 7"), ({"longest": 0}, "longest=0")],
)
def test_windows_between_which_answers_would_be_lost_are_refused(wrong, message):
    check_windows(WindowSettings())
    check_windows(replace(WINDOWS, stride=17))
    with pytest.raises(ValueError, match=message):
        check_windows(replace(WINDOWS, **wrong))


ROW = {"id": "a", "context": "Anna lives in Oslo.", "question": "Where?", "answers": [{"text": "Oslo", "start": 14}]}


def written(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_lines_become_questions_packed_or_not(tmp_path):
    plain = written(tmp_path / "q.jsonl", ROW, "", {**ROW, "id": "b"})
    packed = tmp_path / "q.jsonl.xz"
    packed.write_bytes(lzma.compress(json.dumps(ROW).encode()))
    result = read_questions([plain, str(packed)])
    assert [question.id for question in result] == ["a", "b", "a"]
    assert result[0].answers == (Answer("Oslo", 14),)
    assert result[1].where == f"{plain}, line 3"
    assert (result[0].text, result[0].context) == ("Where?", "Anna lives in Oslo.")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {**ROW, "answers": [{"text": "Oslo", "start": 13}]},
            "'Oslo' must be in its context at character 13.*' Osl'",
        ),
        ({**ROW, "answers": [{"text": "Oslo", "start": -5}]}, "character -5"),
        ({**ROW, "answers": [{"text": " ", "start": 4}]}, "the answer ' '"),
        ({**ROW, "answers": []}, "1 answer or more, got none"),
        ({**ROW, "answers": [{"text": "Oslo"}]}, "each with a text and its start, got"),
        ({**ROW, "answers": [{"text": "Oslo", "start": "14"}]}, "each with a text and its start, got"),
        ({**ROW, "context": " ", "answers": [{"text": "x", "start": 0}]}, "a context must have words, got ' '"),
        ("[1", r"got '\[1'"),
        ({"question": "x"}, "an object with strings"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(tmp_path, row, message):
    path = written(tmp_path / "q.jsonl", ROW, row)
    with pytest.raises(ValueError, match=f"q.jsonl, line 2: .*{message}"):
        read_questions([path])


def test_a_question_may_be_empty_as_one_of_cmrc_is(tmp_path):
    (result,) = read_questions([written(tmp_path / "q.jsonl", {**ROW, "question": ""})])
    assert result.text == ""


def test_a_file_without_questions_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"got none in .*empty.jsonl"):
        read_questions([written(tmp_path / "empty.jsonl", "")])


def test_answers_keep_their_place_when_white_space_is_folded():
    context = "Oslo  is\tnorth.  Anna lives in\u200b  Oslo ."
    start = context.rindex("Oslo")
    result = make_question("a", "Where ?", context, [Answer("Oslo", start)])
    assert result.context == "Oslo is north. Anna lives in Oslo ."
    assert result.answers[0].start == result.context.rindex("Oslo")
    assert make_question("a", "Where ?", context, [Answer("Oslo", 0)]).answers[0].start == 0


def test_letters_that_compose_are_found_composed():
    result = make_question("a", "Wo?", "Er  wohnt in Ko\u0308ln.", [Answer("Ko\u0308ln", 13)])
    assert result.answers[0] == Answer("Köln", result.context.index("Köln"))


def test_no_context_is_on_both_sides_of_a_split():
    settings = [make_question(str(n), "Who?", f"Text {n // 3}.", [Answer("Text", 0)]) for n in range(30)]
    taught, judged = split_questions(settings, 0.2)
    assert len(taught) == 24
    assert not {each.context for each in taught} & {each.context for each in judged}
    assert sorted(taught + judged, key=settings.index) == settings
    with pytest.raises(ValueError, match="2 contexts or more, got 1"):
        split_questions(settings[:3], 0.2)


def test_facts_ask_for_what_stands_there_once_for_each_person_and_relation():
    settings = make_facts(50, seed=3)
    assert settings == make_facts(50, seed=3) != make_facts(50, seed=4)
    for question in settings:
        (answer,) = question.answers
        assert question.context[answer.start : answer.stop] == answer.text
        sentence = next(each for each in question.context.split(".") if each.strip().endswith(answer.text))
        name = sentence.split()[0]
        assert name in question.text
        kinds = [kind for kind, (_, asked, _) in enumerate(FACTS) if asked.format(name=name) == question.text]
        assert len(kinds) == 1
        assert answer.text in FACTS[kinds[0]][2].split()
        assert sum(word in FACTS[kinds[0]][2].split() for word in question.context.replace(".", "").split()) == 3
