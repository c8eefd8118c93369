"""Words as labels: what is seen of them, and how much room they take."""

import re

import pytest

from regard.plot.canvas import check_words, fit_text, line_height, make_sheet, text_width, write
from regard.plot.style import style
from regard.terminal import shorten
from tests.plot.seen import drawn_texts


@pytest.mark.parametrize("text", ["Introduce Xi'an", "介绍一下西安", "·西安 62%", "WWWWWMMMMM", "from $x_1$ to $y_2$"])
def test_a_text_is_as_wide_as_it_is_drawn(text):
    figure, axes = make_sheet(4.0, 1.0)
    with style():
        write(axes, 0.1, 0.5, text, 8.0)
    ((_, corners),) = drawn_texts(figure)
    with style():
        assert corners[:, 0].max() - corners[:, 0].min() == pytest.approx(text_width(text, 8.0), rel=0.05)
    assert corners[:, 1].max() - corners[:, 1].min() <= line_height(8.0)


def test_a_text_is_cut_to_a_width_and_no_further():
    text = "pair_3:wavelength_340"
    with style():
        for width in (0.3, 0.6, 0.9, 5.0):
            cut = fit_text(text, 8.0, width)
            assert text_width(cut, 8.0) <= width
            assert cut == text or text_width(shorten(text, len(cut) + 1), 8.0) > width
        assert fit_text("wavelength", 8.0, 0.01) == "…"


def test_words_that_are_too_few_or_none_are_refused():
    with pytest.raises(ValueError, match=re.escape("queries must be as many as the rows, got 2 and 3")):
        check_words("queries", ["a", "b"], 3, "rows")
    with pytest.raises(ValueError, match=re.escape("a figure needs 1 or more queries, got 0")):
        check_words("queries", [], 0, "rows")
