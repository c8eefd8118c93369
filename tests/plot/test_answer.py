"""The figure of a question and its answer, and the tables beside it."""

import numpy as np
import pytest

from regard.decode.answers import Answers, Found
from regard.plot.answer import draw_answer
from regard.plot.answers_table import answers_table, marked, scores_table
from regard.score.answers import AnswerScores

from .figures import SRC, TGT, weights


def texts(figure):
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def test_both_ways_of_looking_are_drawn_with_the_answer_framed(tmp_path):
    figure = draw_answer(weights(4, 5), weights(5, 4), SRC, TGT, (1, 3), "西安？ → Xi'an")
    figure.savefig(tmp_path / "answer.png")
    images = [image for axes in figure.axes for image in axes.images]
    assert len(images) >= 2
    np.testing.assert_allclose(images[0].get_array(), weights(4, 5))
    np.testing.assert_allclose(images[1].get_array(), weights(5, 4).T)
    frames = [patch for patch in figure.axes[0].patches if patch.get_linewidth() > 1]
    assert len(frames) == 2
    box = images[0].get_extent()
    cell = (box[1] - box[0]) / 5
    assert frames[0].get_x() == pytest.approx(box[0] + cell)
    assert frames[0].get_width() == pytest.approx(2 * cell)
    assert "一下" in texts(figure)


@pytest.mark.parametrize("answer", [(2, 2), (-1, 2), (3, 6)])
def test_an_answer_outside_the_words_is_refused(answer):
    with pytest.raises(ValueError, match=f"got {answer[0]} … {answer[1]}"):
        draw_answer(weights(4, 5), weights(5, 4), SRC, TGT, answer)


def test_an_answer_is_marked_in_its_text():
    assert marked("Anna lives in Oslo.", 14, 18) == "Anna lives in »Oslo«."
    assert marked("a" * 9 + "Oslo" + "b" * 9, 9, 13, reach=2) == "…aa»Oslo«bb…"


def test_tables_list_answers_and_scores():
    found = Answers((Found("Oslo", 14, 18, 0.75, 2.0, 0, (3, 3)),), 0.125)
    table = answers_table(found)
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert cells == [["Oslo", "none in this text"], ["75.0%", "12.5%"], ["14–18", ""]]
    scores = scores_table({"mine": AnswerScores(12.34, 56.78, "cmrc", 9)}, "9 questions")
    assert [[str(cell) for cell in column.cells] for column in scores.columns] == [["mine"], ["12.3"], ["56.8"]]
