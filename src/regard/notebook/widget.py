"""The page's own view as a widget."""

import anywidget
import traitlets

from regard.serve.html import MOST_NUMBERS
from regard.serve.json_answer import to_json
from regard.serve.page import PAGE, UNBUILT
from regard.serve.payload import head_of, view_of
from regard.serve.view import Saved
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


def saved_of(trace: Trace) -> Saved:
    """Gives just what a saved page holds."""
    numbers = sum(look.n_heads * look.sizes[1] * look.sizes[2] * 8 for look in trace.looks)
    looks = trace.looks if numbers <= MOST_NUMBERS else ()
    heads = [head_of(trace, look.kind, look.layer, head) for look in looks for head in range(look.n_heads)]
    return Saved([view_of(trace)], heads)
