"""A trace in a notebook: the page's own payload in a widget, a picture, and words."""

import json
import re
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from io import BytesIO

import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.image import imread

import regard
from regard.notebook.shown import VIEW
from regard.notebook.widget import ViewWidget, make_widget
from regard.serve.html import page_of
from regard.serve.json_answer import to_json
from regard.serve.payload import view_of
from regard.trace import Traced
from regard.trace.made import make_given
from tests.trace.makers import make_model, make_translator


def inside(html):
    """Gives what a saved page holds."""
    return json.loads(re.search(r'<script type="application/json" id="regard-view"[^>]*>(.*?)</script>', html)[1])


@pytest.mark.parametrize("most", [10, 10**6])
def test_a_widget_holds_what_a_saved_page_holds(trace, page, monkeypatch, most):
    monkeypatch.setattr("regard.serve.html.MOST_NUMBERS", most)
    held = json.loads(make_widget(trace, "").saved)
    assert held == inside(page_of(trace))
    assert held["views"] == [json.loads(to_json(view_of(trace)))]
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
    encoder = make_given(trace.encoder, trace.source, (), (), "bad cab")
    data, _ = encoder._repr_mimebundle_()
    assert made[0].address == "view=attention" and "image/png" in data


def test_without_anywidget_the_words_say_how_to_install_it(trace, page, without):
    without("anywidget")
    data, notes = trace._repr_mimebundle_()
    hint = "install anywidget: pip install 'regard[notebook]'"
    assert hint in data["text/plain"] and repr(trace) in data["text/plain"]
    assert VIEW not in data and "image/png" not in data and notes == {}
    html = data["text/html"]
    assert hint.replace("'", "&#x27;") in html and '<img alt="what was looked at" width="' in html


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
    found = make_translator(make_model()).translate("bad cab", trace=True)[0]
    many = Traced(found.translation, (found.trace, replace(found.trace, text="another")))
    many._ipython_display_()
    assert displayed == list(many.traces)


def test_a_notebook_needs_no_web_server():
    code = "import sys; sys.modules.update(fastapi=None, starlette=None, uvicorn=None); import regard.notebook."
    for room in ("widget", "page"):
        subprocess.run([sys.executable, "-c", code + room], check=True, timeout=60)


def test_the_names_are_at_the_front_door():
    assert {"head_view", "model_view", "show_heatmaps", "show_trace"} <= set(regard.__all__)
    assert regard.show_trace.__module__ == "regard.notebook.shown"
