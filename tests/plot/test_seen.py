"""What holds for every figure of a trace: all words can be read, and it can be saved."""

import pytest

from regard.plot.canvas import make_sheet, write
from regard.plot.style import save_figure, style
from regard.plot.words import draw_word_attention
from tests.plot.figures import EXTREMES, FIGURES, weights
from tests.plot.seen import collisions, drawn_texts, keys

BEGINS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("name", [*FIGURES, *EXTREMES])
def test_no_word_covers_another_or_leaves_the_sheet(name):
    figure = (FIGURES | EXTREMES)[name]()
    texts = drawn_texts(figure)
    width, height = figure.get_size_inches()
    outside = [text for text, at in texts if at.min() < 0 or at[:, 0].max() > width or at[:, 1].max() > height]
    assert not outside
    assert not collisions(texts + keys(figure))


def test_a_long_title_is_cut_to_one_line_and_makes_no_figure_wide():
    figure = draw_word_attention(weights(1, 1), ["西安"], ["Xi'an"], "介绍一下西安。\n" * 40)
    assert figure.get_size_inches()[0] < 9
    (title,) = [text for text, _ in drawn_texts(figure) if text.startswith("介绍")]
    assert "\n" not in title and title.endswith("…")


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_is_saved_in_each_format_with_all_its_characters(name, tmp_path):
    """A missing glyph warns, which is an error here."""
    figure = FIGURES[name]()
    for ending, begin in BEGINS.items():
        path = tmp_path / f"x.{ending}"
        save_figure(figure, path)
        assert path.read_bytes().startswith(begin)


@pytest.mark.parametrize(("turn", "expected"), [(0, [("西安", "Xi'an")]), (45, [])])
def test_collisions_are_seen_and_slanted_words_side_by_side_are_none(turn, expected):
    figure, axes = make_sheet(3.0, 2.0)
    look = {"rotation": turn, "rotation_mode": "anchor", "va": "bottom"}
    with style():
        write(axes, 0.5, 1.0, "西安", 8.0, **look)
        write(axes, 0.68, 1.0, "Xi'an", 8.0, **look)
    assert collisions(drawn_texts(figure)) == expected
