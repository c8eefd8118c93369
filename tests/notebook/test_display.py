"""Heatmaps as in Dive into Deep Learning: the given numbers, in one scale.

A trace in a notebook: the page's own payload in a widget, a picture, and words.
"""

import json
import re
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread
from matplotlib.text import Text

import regard
from regard.notebook.display import VIEW, ViewWidget, make_widget
from regard.serve.schema_api import to_json
from regard.serve.serialize import make_view, render_html
from regard.trace import TracedTranslation
from regard.trace.external import trace_from_attention
from tests.trace.makers import make_model, make_translator

MATRICES = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def images(figure):
    return [axes.images[0] for axes in figure.axes[:-1]]


@pytest.mark.parametrize("form", [lambda x: x, torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.requires_grad_])
def test_the_given_numbers_are_drawn_in_their_places(displayed, form):
    regard.show_heatmaps(form(MATRICES.clone()), "Keys", "Queries")
    (figure,) = displayed
    drawn = [image.get_array() for image in images(figure)]
    np.testing.assert_array_equal(np.stack(drawn), MATRICES.flatten(0, 1).numpy())


def test_all_share_one_scale_which_the_bar_shows(displayed):
    regard.show_heatmaps(MATRICES, "Keys", "Queries")
    (figure,) = displayed
    ends = (float(MATRICES.min()), float(MATRICES.max()))
    assert {image.get_clim() for image in images(figure)} == {ends}
    assert figure.axes[-1].get_ylim() == pytest.approx(ends)


def test_words_stand_once_where_they_belong(displayed):
    regard.show_heatmaps(MATRICES, "Keys", "Queries", titles=["one", "two", "three"], figsize=(7, 4), cmap="Blues")
    (figure,) = displayed
    texts = [text.get_text() for text in figure.findobj(Text)]
    assert [texts.count(word) for word in ("Keys", "Queries", "one", "two", "three")] == [3, 2, 1, 1, 1]
    assert tuple(figure.get_size_inches()) == (7, 4)
    assert {image.get_cmap().name for image in images(figure)} == {"Blues"}


def test_what_is_not_finite_is_left_out_and_moves_no_scale(displayed):
    masked = MATRICES.clone()
    masked[0, 0, 0, 0], masked[1, 2, 4, 6] = -torch.inf, torch.nan
    regard.show_heatmaps(masked, "Keys", "Queries")
    drawn = np.ma.stack([image.get_array() for image in images(displayed[0])])
    assert drawn.mask.sum() == 2 and drawn.mask[0, 0, 0] and drawn.mask[5, 4, 6]
    assert images(displayed[0])[0].get_clim() == (drawn.min(), drawn.max())


@pytest.mark.parametrize("cmap", ["RdBu", "coolwarm_r"])
def test_the_middle_of_two_arms_is_zero(displayed, cmap):
    regard.show_heatmaps(MATRICES + 1, "Keys", "Queries", cmap=cmap)
    low, high = images(displayed[0])[0].get_clim()
    assert low == -high == -float((MATRICES + 1).abs().max())


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 0, 7), (1, 2, 3, 5, 7)])
def test_other_shapes_are_refused(displayed, shape):
    with pytest.raises(ValueError, match=rf"\(rows, columns, queries, keys\), got \({', '.join(map(str, shape))}\)"):
        regard.show_heatmaps(torch.ones(shape), "Keys", "Queries")
    assert not displayed


def test_other_words_are_refused(displayed, without):
    with pytest.raises(ValueError, match="titles must be as many as the columns, got 2 and 3"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries", titles=["one", "two"])
    with pytest.raises(ValueError, match=r"cmap must be one of matplotlib's.* got 'Rot'"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries", cmap="Rot")
    without("matplotlib")
    with pytest.raises(ValueError, match=r"heatmaps need matplotlib.*pip install 'regard\[notebook\]'"):
        regard.show_heatmaps(MATRICES, "Keys", "Queries")


def inside(html):
    """Gives what a saved page holds."""
    return json.loads(re.search(r'<script type="application/json" id="regard-view"[^>]*>(.*?)</script>', html)[1])


@pytest.mark.parametrize("most", [10, 10**6])
def test_a_widget_holds_what_a_saved_page_holds(trace, page, monkeypatch, most):
    monkeypatch.setattr("regard.serve.serialize.MAX_NUMBERS", most)
    held = json.loads(make_widget(trace, "").saved)
    assert held == inside(render_html(trace))
    assert held["views"] == [json.loads(to_json(make_view(trace)))]
    assert bool(held["heads"]) == (most > 10)


def test_a_trace_shows_itself_as_view_picture_and_words(trace, page, made):
    data, notes = DisplayFormatter().format(trace)
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data["text/plain"] == repr(trace)
    height, width, _ = imread(BytesIO(b64decode(data["image/png"]))).shape
    assert width == pytest.approx(notes["image/png"]["width"] * 144 / 96, abs=2)
    assert height == pytest.approx(notes["image/png"]["height"] * 144 / 96, abs=2)
    (widget,) = made
    assert isinstance(widget, ViewWidget) and widget.address == "" and data[VIEW]["model_id"] == widget.model_id
    assert widget._esm == (page / "widget.js").read_text(encoding="utf-8")
    assert json.loads(widget.saved)["views"][0]["output"] == trace.output


def test_without_cross_attention_the_view_opens_at_attention(trace, page, made):
    encoder = trace_from_attention(trace.encoder, trace.source, (), (), "bad cab")
    data, _ = encoder._repr_mimebundle_()
    assert made[0].address == "view=attention" and "image/png" in data


def test_without_anywidget_the_words_say_how_to_install_it(trace, page, without):
    without("anywidget")
    data, notes = trace._repr_mimebundle_()
    hint = "install anywidget: pip install 'regard[notebook]'"
    assert hint in data["text/plain"] and repr(trace) in data["text/plain"]
    assert VIEW not in data and "image/png" not in data and notes == {}
    html = data["text/html"]
    assert hint.replace("'", "&#x27;") in html and '<img alt="what was attended to" width="' in html


def test_without_the_built_page_the_words_say_how_to_build_it(trace, page):
    (page / "widget.js").unlink()
    data, _ = trace._repr_mimebundle_()
    assert "make page" in data["text/plain"] and "make page" in data["text/html"] and VIEW not in data


def test_without_matplotlib_there_is_a_view_and_no_picture(trace, page, without):
    without("matplotlib")
    assert set(trace._repr_mimebundle_()[0]) == {VIEW, "text/plain"}
    without("matplotlib", "anywidget")
    data, _ = trace._repr_mimebundle_()
    assert "<img" not in data["text/html"] and "install anywidget" in data["text/html"]


def test_a_text_of_several_parts_shows_each(displayed):
    (found,) = regard.trace_texts(make_translator(make_model()), ["bad cab"])
    many = TracedTranslation(found.translation, (found.trace, replace(found.trace, text="another")))
    many._ipython_display_()
    assert displayed == list(many.traces)


def test_a_notebook_needs_no_web_server():
    code = "import sys; sys.modules.update(fastapi=None, starlette=None, uvicorn=None); import regard.notebook."
    for module in ("bertviz", "display"):
        subprocess.run([sys.executable, "-c", code + module], check=True, timeout=60)


def test_the_names_are_at_the_front_door():
    assert {"head_view", "model_view", "show_heatmaps", "show_trace"} <= set(regard.__all__)
    assert regard.show_trace.__module__ == "regard.notebook.display"


def test_a_trace_is_shown_once_the_front_door_is_used_in_a_notebook():
    """The room of traces knows nothing of notebooks; the front door brings the display where IPython runs."""
    code = (
        "import IPython.core.interactiveshell as shell\n"
        "from regard.trace.trace import Trace\n"
        "assert not hasattr(Trace, '_repr_mimebundle_')\n"
        "import regard\n"
        "regard.trace\n"
        "assert not hasattr(Trace, '_repr_mimebundle_')\n"
        "shell.InteractiveShell.instance()\n"
        "regard.load_trace\n"
        "assert hasattr(Trace, '_repr_mimebundle_')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
