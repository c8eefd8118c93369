"""Answers: the best stretch is the one that trying all of them finds."""

from dataclasses import replace

import pytest
import torch

from regard.decode.answers import answer_questions, choose_spans, make_reading, span_scores, window_scores
from regard.text.passages import cut_passage, make_passage, to_characters

from ..readers import WINDOWS, questions, small_reader


def brute(reader, question):
    """Tries every stretch of every window by itself, and gives the log-odds of each stretch of the context."""
    passage = make_passage(question, reader.tokenizer, WINDOWS)
    found = {}
    for window in cut_passage(passage, 0, WINDOWS):
        with torch.no_grad():
            start, end = (each[0] for each in reader.model(make_reading([window])))
        for i in range(window.offset, len(window.ids)):
            for j in range(i, min(i + WINDOWS.longest, len(window.ids))):
                place = (i - window.offset + window.first, j - window.offset + window.first)
                odds = float(start[i] + end[j] - start[0] - end[0])
                found[place] = max(found.get(place, -torch.inf), odds)
    return passage, found


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_best_answers_equal_brute_force(language):
    reader = small_reader(language)
    for question, answers in zip(
        questions(language), answer_questions(reader, questions(language), n_best=10_000), strict=True
    ):
        passage, odds = brute(reader, question)
        assert len(cut_passage(passage, 0, WINDOWS)) > 2, "the text is read in several windows"
        shares = torch.tensor([*odds.values(), 0.0], dtype=torch.float64).softmax(0)
        expected = sorted(zip(odds, shares[:-1].tolist(), strict=True), key=lambda each: -each[1])
        assert {found.pieces for found in answers.found} == set(odds)
        assert answers.found[0].pieces == expected[0][0]
        assert answers.found[0].text == question.context[slice(*to_characters(passage.spans, expected[0][0]))]
        given = torch.tensor([found.probability for found in answers.found], dtype=torch.float64)
        torch.testing.assert_close(given, torch.tensor([share for _, share in expected], dtype=torch.float64))
        assert float(given.sum()) + answers.nowhere == pytest.approx(1.0)
        assert answers.nowhere == pytest.approx(float(shares[-1]))
        for found in answers.found[:20]:
            assert found.score == pytest.approx(odds[found.pieces])
            assert found.text == question.context[found.start : found.stop]


def test_answers_do_not_depend_on_what_else_is_asked():
    reader = small_reader()
    asked = questions() * 40  # more than are read together
    first, second, *_ = together = list(answer_questions(reader, asked))
    assert len(together) == len(asked)
    assert {answers.found[0].pieces for answers in together[0::2]} == {first.found[0].pieces}
    (alone,) = answer_questions(reader, asked[1:2])
    assert alone.found[0].pieces == second.found[0].pieces
    assert alone.found[0].probability == pytest.approx(second.found[0].probability)


def test_a_window_is_measured_against_its_own_first_token():
    reader = small_reader()
    (window, *_) = cut_passage(make_passage(questions()[0], reader.tokenizer, WINDOWS), 0, WINDOWS)
    start, end = torch.randn(2, WINDOWS.size, dtype=torch.float64)
    table = span_scores(start, end, window, 3)
    torch.testing.assert_close(span_scores(start + 7, end - 2, window, 3), table)
    assert table.shape == (window.n_read, 3)
    assert table[-1, 1:].tolist() == [-torch.inf] * 2, "no stretch goes beyond the text"


def test_of_two_windows_the_one_with_the_better_score_is_named():
    reader = small_reader()
    passage = make_passage(questions()[0], reader.tokenizer, WINDOWS)
    cut = cut_passage(passage, 0, WINDOWS)
    tables = window_scores(reader.model, cut, WINDOWS.longest)
    tables = [table.clone().fill_(-5.0) for table in tables]
    both = cut[1].first  # the first piece of the second window also stands in the first
    tables[0][both, 1], tables[1][0, 1] = 1.0, 2.0
    (found,) = choose_spans(questions()[0], passage, cut, tables, 1).found
    assert (found.pieces, found.window, found.score) == ((both, both + 1), 1, 2.0)


def test_batches_have_few_widths():
    reader = small_reader()
    (window, *_) = cut_passage(make_passage(questions()[0], reader.tokenizer, WINDOWS), 0, WINDOWS)
    wide = replace(window, ids=window.ids * 3, marks=window.marks * 3)
    assert {make_reading([window]).marks.shape[1], make_reading([window, wide]).marks.shape[1]} == {64, 128}


def test_an_empty_question_has_an_answer_too():
    empty = replace(questions()[0], text="")
    (answers,) = answer_questions(small_reader(), [empty])
    assert answers.found[0].text in empty.context
