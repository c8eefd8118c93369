"""Figures show themselves in notebooks."""

from base64 import b64decode
from io import BytesIO

import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread

from regard.plot.drawing import to_png
from regard.plot.one_head import draw_one_head
from regard.plot.regression import draw_regression
from regard.plot.sheet import make_sheet
from regard.study.regression import run_regression
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
