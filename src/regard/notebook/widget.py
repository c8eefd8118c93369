"""The page's own view as a widget."""

import anywidget
import traitlets

from regard.serve.html import saved_of
from regard.serve.json_answer import to_json
from regard.serve.page import PAGE, UNBUILT
from regard.trace.trace import Trace

MODULE = PAGE / "widget.js"


class ViewWidget(anywidget.AnyWidget):
    """A run, and what of it is shown at first."""

    _esm = traitlets.Unicode().tag(sync=True)  # the built page, which draws
    saved = traitlets.Unicode().tag(sync=True)  # `serve.view.Saved` as JSON
    address = traitlets.Unicode().tag(sync=True)  # as the page writes it behind its #


def make_widget(trace: Trace, address: str) -> ViewWidget:
    """Puts a trace into the built page; ValueError where it is not built."""
    if not MODULE.is_file():
        raise ValueError(UNBUILT)
    return ViewWidget(_esm=MODULE.read_text(encoding="utf-8"), saved=to_json(saved_of(trace)), address=address)
