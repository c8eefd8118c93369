"""A run to look at, a stand-in for the built page, and what was displayed."""

import pytest

from regard.serve.serialize import PLACEHOLDER
from tests.trace.makers import make_model, one_trace


@pytest.fixture(scope="session")
def trace():
    """A search in a model with two layers a stack."""
    model = make_model(n_encoder_layers=2, n_decoder_layers=2)
    return one_trace(model, "bad cab", method="beam", beam=3)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Stands in for the built page, which need not be there."""
    (tmp_path / "widget.js").write_text("export function render() {}", encoding="utf-8")
    (tmp_path / "view.html").write_text(f"<html>{PLACEHOLDER}</html>", encoding="utf-8")
    monkeypatch.setattr("regard.notebook.display.MODULE", tmp_path / "widget.js")
    monkeypatch.setattr("regard.serve.serialize.PAGE", tmp_path)
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """The widgets that were made."""
    from regard.notebook import display as widget

    found, make = [], widget.make_widget
    monkeypatch.setattr(widget, "make_widget", lambda *given: found.append(make(*given)) or found[-1])
    return found


@pytest.fixture
def displayed(monkeypatch):
    """What was displayed, in its order."""
    things = []
    monkeypatch.setattr("IPython.display.display", things.append)
    return things


@pytest.fixture
def without(monkeypatch):
    """Hides an installed package."""
    from regard.notebook import display as needs

    real = needs.find_spec

    def hide(*names):
        monkeypatch.setattr(needs, "find_spec", lambda name: None if name in names else real(name))

    return hide
