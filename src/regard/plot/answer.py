"""How a question and the words around its answer looked at each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from regard.plot.figure import COLOURS, in_style
from regard.plot.matrix import draw_matrix, name_columns, name_rows, place_map
from regard.plot.measure import line_height
from regard.plot.shade import KEY_HEIGHT, draw_key, weight_shade
from regard.plot.sheet import MARGIN, NAME, Box, make_sheet, title_size, write, write_title
from regard.plot.words import check_words

CELL = 0.3, 0.26
GAP = 0.15  # inches between a map and what is said of the next
BELOW = "rows: words of the question; columns: words of the text, the answer framed"
SAID = ("what each question word looked at", "which question words each word of the text looked at")
FRAME: Any = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 1.6}


@in_style
def draw_answer(
    to_context: Float[np.ndarray, "q c"],
    to_question: Float[np.ndarray, "c q"],
    question: Sequence[str],
    context: Sequence[str],
    answer: tuple[int, int],
    title: str = "Question and answer",
) -> Figure:
    """Draws two maps over the same words, one for each way of looking, with a frame around the answer's columns."""
    Q, C = to_context.shape
    check_words("question words", question, Q, "rows")
    check_words("words of the text", context, C, "columns")
    if not 0 <= answer[0] < answer[1] <= C:
        raise ValueError(f"the answer must lie in words 0 … {C}, got {answer[0]} … {answer[1]}")
    line = line_height(NAME) + 0.05
    wide, top = title_size(title, BELOW)
    first, right = place_map(question, context, CELL, top + line)
    second = Box(first.left, first.bottom + GAP + line, first.width, first.height)
    figure, axes = make_sheet(max(wide, right + MARGIN, 3.4), second.bottom + GAP + KEY_HEIGHT)
    write_title(axes, title, BELOW)
    write(axes, MARGIN, top + line / 2, SAID[0], NAME)
    write(axes, MARGIN, second.top - line / 2, SAID[1], NAME)
    name_columns(axes, context, first)
    shade = weight_shade(to_context, to_question)
    for values, box in ((to_context, first), (to_question.T, second)):
        draw_matrix(axes, values, box, shade)
        name_rows(axes, question, box)
        _frame(axes, box, C, answer)
    draw_key(figure, shade, Box(MARGIN, second.bottom + GAP, 1.5, KEY_HEIGHT), "share of all that a word looked at")
    return figure


def _frame(axes: Axes, box: Box, n_columns: int, answer: tuple[int, int]) -> None:
    width = box.width / n_columns
    axes.add_patch(
        Rectangle((box.left + answer[0] * width, box.top), (answer[1] - answer[0]) * width, box.height, **FRAME)
    )
