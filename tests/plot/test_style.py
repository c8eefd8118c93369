"""Figures show themselves in notebooks.

Saving figures, and the font that draws Chinese.
"""

import re
import warnings
from base64 import b64decode
from io import BytesIO

import matplotlib as mpl
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from matplotlib.image import imread

from regard.plot import style as figure_room
from regard.plot import style as fonts
from regard.plot.canvas import make_sheet
from regard.plot.head_maps import draw_one_head
from regard.plot.style import in_style, save_figure, to_png
from regard.study.regression import draw_regression, run_regression
from tests.plot.figures import weights

FIGURES = {
    "a sheet": lambda: draw_one_head(weights(3, 3), ["a", "b", "c"], ["x", "y", "z"]),
    "axes": lambda: draw_regression(run_regression(n_train=5, steps=2)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_notebook_shows_a_picture_of_the_size_it_was_made_for(name):
    figure = FIGURES[name]()
    data, notes = DisplayFormatter().format(figure)
    assert {"image/png", "text/plain"} <= set(data)
    height, width, _ = imread(BytesIO(b64decode(data["image/png"]))).shape
    inches = figure.get_size_inches()
    assert np.allclose([width, height], inches * 144, atol=1)
    assert notes["image/png"] == {"width": round(inches[0] * 96), "height": round(inches[1] * 96)}


def test_the_same_figure_gives_the_same_bytes():
    assert to_png(FIGURES["a sheet"]()) == to_png(FIGURES["a sheet"]())


def test_an_empty_sheet_is_white():
    figure, _ = make_sheet(1.0, 1.0)
    assert imread(BytesIO(b64decode(to_png(figure)))).min() == 1.0


@in_style
def draw(text):
    figure = Figure(figsize=(2, 1))
    figure.text(0.1, 0.3, text, fontsize=30)
    return figure


def pixels(text, path):
    save_figure(draw(text), path)
    return imread(path)


def test_chinese_characters_are_drawn_not_boxes(tmp_path):
    """A missing glyph warns (an error in tests) and draws the same box for each character."""
    one, other = (pixels(text, tmp_path / f"{i}.png") for i, text in enumerate(("介绍", "西安")))
    assert one.min() < 0.5, "nothing was drawn"
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("ending", ["svg", "pdf"])
def test_chinese_is_drawn_in_vector_figures_too(ending, tmp_path):
    save_figure(draw("介绍一下西安 Xi'an"), tmp_path / f"x.{ending}")


def test_the_packaged_font_is_found_where_the_machine_has_none(monkeypatch):
    monkeypatch.setattr(fonts, "FAMILIES", ())
    assert fonts.chinese_family() == "Noto Sans SC"


def test_a_clear_hint_where_no_font_is_found(monkeypatch, tmp_path):
    monkeypatch.setattr(figure_room, "chinese_family", lambda: None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_figure(draw("西安"), tmp_path / "x.png")
    assert any("pip install 'regard[plot]'" in str(warning.message) for warning in caught)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        save_figure(draw("Xi'an"), tmp_path / "x.png")
    assert not caught


@pytest.mark.parametrize(("text", "expected"), [("Xi'an", False), ("西安", True), ("。", True), ("√d ≠ ᵀ", False)])
def test_chinese_is_recognised(text, expected):
    assert fonts.has_chinese(text) is expected


def test_the_caller_s_settings_stay_as_they_were(tmp_path):
    before = dict(mpl.rcParams)
    save_figure(draw("西安"), tmp_path / "x.png")
    assert dict(mpl.rcParams) == before


def test_a_failed_save_leaves_the_old_figure_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_bytes(b"old")
    broken = draw("x")
    monkeypatch.setattr(broken, "savefig", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        save_figure(broken, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_ending_is_refused(tmp_path):
    with pytest.raises(ValueError, match=re.escape("must end in .png, .svg, .pdf, got 'x.gif'")):
        save_figure(draw("x"), tmp_path / "x.gif")
