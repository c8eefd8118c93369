"""Words as labels: what is seen of them, and how much room they take."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from regard.plot.canvas import (
    LONGEST,
    check_words,
    fit_text,
    line_height,
    make_sheet,
    readable,
    shorten,
    text_width,
    without_marks,
    write,
)
from regard.plot.style import style
from tests.plot.seen import drawn_texts


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("▁In", "·In"),
        ("▁", "·"),
        ("西安", "西安"),
        (" ", "␣"),
        ("a\nb", "a␣b"),
        ("layer 3", "layer 3"),
        ("", "∅"),
        ("$x$", "$x$"),
        ("an_endless_identifier", "an_endless_iden…"),
        ("百分之六点一二三四五", "百分之六点一二…"),
    ],
)
def test_a_word_becomes_readable(word, expected):
    assert readable(word) == expected


@given(st.text(st.characters(exclude_categories=["Mn", "Me", "Cs"])))
def test_every_word_has_a_label_that_fits_on_one_line(word):
    label = readable(word)
    assert label.strip()
    assert cell_len(label) <= LONGEST
    assert len(label.splitlines()) == 1


def test_marks_are_taken_off_where_the_caller_wants_it():
    assert without_marks(["▁In", "tro", "▁", "a▁b"]) == ["In", "tro", "␣", "ab"]


@pytest.mark.parametrize("most", range(1, 12))
def test_a_text_is_cut_to_its_columns(most):
    cut = shorten("介绍一下Xi'an", most)
    assert cell_len(cut) <= most
    assert cut == "介绍一下Xi'an"[: len(cut) - 1] + "…"


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
