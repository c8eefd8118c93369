"""The tables of an answer, and looking into it: the window that was read, all its heads, and shares that add up."""

import pytest
import torch

from regard.qa.predict import AnswerScores, PredictedSpan, Prediction, answer_questions
from regard.qa.view import (
    answer_neighbourhood,
    answers_table,
    attention_between,
    mark_answer,
    scores_table,
    trace_answer,
)
from regard.trace import load_trace
from tests.readers import MODEL, questions, small_reader


def test_an_answer_is_marked_in_its_text():
    assert mark_answer("Anna lives in Oslo.", 14, 18) == "Anna lives in »Oslo«."
    assert mark_answer("a" * 9 + "Oslo" + "b" * 9, 9, 13, reach=2) == "…aa»Oslo«bb…"


def test_tables_list_answers_and_scores():
    result = Prediction((PredictedSpan("Oslo", 14, 18, 0.75, 2.0, 0, (3, 3)),), 0.125)
    table = answers_table(result)
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert cells == [["Oslo", "no answer in this text"], ["75.0%", "12.5%"], ["14–18", ""]]
    scores = scores_table({"mine": AnswerScores(12.34, 56.78, "cmrc", 9)}, "9 questions")
    assert [[str(cell) for cell in column.cells] for column in scores.columns] == [["mine"], ["12.3"], ["56.8"]]


def traced(language="en"):
    reader = small_reader(language)
    question = questions(language)[0]
    (answers,) = answer_questions(reader, [question])
    return reader, question, answers.spans[0], trace_answer(reader, question, answers.spans[0])


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_trace_is_that_of_the_answer(language):
    reader, question, result, seen = traced(language)
    assert seen.score_difference < 1e-9
    assert seen.score == pytest.approx(result.score)
    assert len(seen.trace.encoder) == MODEL.n_encoder_layers
    assert seen.trace.check().weights < 1e-9
    asked = "".join(word.text for word in seen.question)
    assert len(asked) > 5
    assert question.text.replace(" ", "").startswith(asked)
    first, last = seen.answer
    message = "".join(word.text for word in seen.context[first:last])
    assert result.text.replace(" ", "") in message
    assert reader.model.training is False
    assert not any(layer.attention.attention._forward_hooks for layer in reader.model.encoder.layers)


def test_shares_are_those_of_the_heads_looked_at_pieces_added_looking_ones_averaged():
    *_, seen = traced()
    between = attention_between(seen, 1, 0)
    weights = seen.trace.attention_map("encoder", 1).weights(0)
    q, c = (max(range(len(words)), key=lambda n: len(words[n].indices)) for words in (seen.question, seen.context))
    rows, columns = seen.question[q].indices, seen.context[c].indices
    assert min(len(rows), len(columns)) > 1, "both are words of several pieces"
    expected = sum(float(weights[i, j]) for i in rows for j in columns) / len(rows)
    assert float(between.to_context[q, c]) == pytest.approx(expected)
    back = sum(float(weights[j, i]) for i in rows for j in columns) / len(columns)
    assert float(between.to_question[c, q]) == pytest.approx(back)
    assert between.heads == "layer 1, head 0"
    assert attention_between(seen).heads == "all layers, all heads"


def test_without_a_head_shares_are_means():
    *_, seen = traced()
    each = [attention_between(seen, layer, head).to_context for layer in (0, 1) for head in (0, 1)]
    torch.testing.assert_close(attention_between(seen).to_context, torch.stack(each).mean(0))
    torch.testing.assert_close(attention_between(seen, 1).to_context, torch.stack(each[2:]).mean(0))
    with pytest.raises(ValueError, match="got 2"):
        attention_between(seen, 2)


def test_words_around_an_answer_stay_inside_the_text():
    assert answer_neighbourhood((1, 3), 20, 4) == range(0, 7)
    assert answer_neighbourhood((18, 19), 20, 4) == range(14, 20)


def test_a_trace_can_be_kept(tmp_path):
    *_, seen = traced()
    seen.trace.save(tmp_path / "answer.safetensors")
    again = load_trace(tmp_path / "answer.safetensors")
    torch.testing.assert_close(
        again.attention_map("encoder", 1).weights(0), seen.trace.attention_map("encoder", 1).weights(0)
    )
