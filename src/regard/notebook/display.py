"""A trace in a notebook: widget, picture, words."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from typing import Any

import anywidget
import matplotlib as mpl
import numpy as np
import traitlets
from IPython import display
from matplotlib.figure import Figure

from regard.plot.head_maps import HeadWeights, draw_head_grid
from regard.plot.heatmap import draw_heatmaps
from regard.plot.style import shown_size, to_png
from regard.plot.traces import heads_figure, words_figure
from regard.plot.words import draw_head_lines
from regard.serve import PAGE, UNBUILT, InternalError
from regard.serve.schema_api import to_json
from regard.serve.serialize import make_saved, render_html
from regard.shapes import Float
from regard.trace.attention_map import KINDS, as_array
from regard.trace.summary import group_words, merge_words
from regard.trace.trace import Trace, sides

INSTALL = "pip install 'regard[notebook]'"


def lacking(*names: str) -> list[str]:
    """List what is not installed."""
    return [name for name in names if find_spec(name) is None]


def check_installed(what: str, *names: str) -> None:
    """Say how to install what something needs."""
    if missing := lacking(*names):
        raise ValueError(f"{what} need {' and '.join(missing)}, which is not installed: {INSTALL}")


VIEW = "application/vnd.jupyter.widget-view+json"
Bundle = tuple[dict[str, Any], dict[str, Any]]  # what Jupyter shows: an object in several forms, and their metadata


@dataclass(frozen=True, eq=False)
class TraceDisplay:
    """A trace, what of it the view shows at first, and who draws the picture that stands in for it."""

    trace: Trace
    address: str
    draw: "Callable[[], Figure]"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        """Return all three; where the view cannot be made, the words say what it lacks."""
        data: dict[str, Any] = {"text/plain": repr(self.trace)}
        sizes = self._add_picture(data)
        lack = self._add_view(data)
        if lack:
            data["text/plain"] += f"\n{lack}"
            data["text/html"] = f"<p>{escape(lack)}</p>" + _image(data.pop("image/png", ""), sizes)
        return data, {"image/png": sizes} if "image/png" in data else {}

    def _add_picture(self, data: dict[str, Any]) -> dict[str, int]:
        if lacking("matplotlib"):
            return {}
        figure = self.draw()
        data["image/png"] = to_png(figure)
        return shown_size(figure)

    def _add_view(self, data: dict[str, Any]) -> str:
        """Add a widget, or say why there is none."""
        if lacking("anywidget"):
            return f"to look closer, install anywidget: {INSTALL}"

        try:
            widget = make_widget(self.trace, self.address)
        except ValueError as error:
            return str(error)
        data[VIEW] = widget._repr_mimebundle_()[0][VIEW]  # pyright: ignore[reportOptionalSubscript]
        return ""


def show_trace(trace: Trace) -> TraceDisplay:
    """Show a run: its translation, and what each word of it attended to."""
    return TraceDisplay(trace, "" if trace.cross else "view=attention", lambda: run_picture(trace))


def _trace_bundle(trace: Trace, include: object = None, exclude: object = None) -> Bundle:
    return show_trace(trace)._repr_mimebundle_()


Trace._repr_mimebundle_ = _trace_bundle  # pyright: ignore[reportAttributeAccessIssue]  # how Jupyter shows a trace


def _image(png: str, size: dict[str, int]) -> str:
    if not png:
        return ""
    sides = " ".join(f'{side}="{pixels}"' for side, pixels in size.items())
    return f'<img alt="what was attended to" {sides} src="data:image/png;base64,{png}">'


MODULE = PAGE / "widget.js"


class ViewWidget(anywidget.AnyWidget):
    """A run, and what of it is shown at first."""

    _esm = traitlets.Unicode().tag(sync=True)  # the built page, which draws
    saved = traitlets.Unicode().tag(sync=True)  # `serve.view.Saved` as JSON
    address = traitlets.Unicode().tag(sync=True)  # as the page writes it behind its #


def make_widget(trace: Trace, address: str) -> ViewWidget:
    """Put a trace into the built page; ValueError where it is not built."""
    if not MODULE.is_file():
        raise ValueError(UNBUILT)
    return ViewWidget(_esm=MODULE.read_text(encoding="utf-8"), saved=to_json(make_saved(trace)), address=address)


PLACE = 'id="regard-view"'
HIGH = 720  # pixels of the frame in which a notebook shows it


class FramedPage(display.HTML):
    """A whole page as `data`; a notebook shows it in a frame of its own, so that neither disturbs the other."""

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(str(self.data))}" width="100%" height="{HIGH}" style="border: 0"></iframe>'


def make_page(trace: Trace, address: str) -> FramedPage:
    """Put a trace into the built page; the address says what is shown when it opens."""
    try:
        page = render_html(trace)
    except InternalError as error:
        raise ValueError(str(error)) from error
    return FramedPage(page.replace(PLACE, f'{PLACE} data-address="{escape(address)}"', 1))


CROWDED = 40  # words of a side beyond which lines and bars take seconds, and are a haze


def run_picture(trace: Trace) -> Figure:
    """Draw what each word attended to; all heads where there is no cross-attention, or too many words."""
    crowded = max(len(trace.source), len(trace.target)) > CROWDED
    return words_figure(trace) if trace.cross and not crowded else heads_figure(trace)


def lines_picture(trace: Trace, kind: str, layer: int, heads: Sequence[int], unit: str) -> Figure:
    """Draw lines between words, or between pieces; maps where there are too many of either."""
    weights, rows, columns = labelled_weights(
        trace.attention_map(kind, layer).weights()[list(heads)], trace, kind, unit
    )
    if max(len(rows), len(columns)) > CROWDED:
        return maps_picture(trace, unit)
    names, title = [f"head {head}" for head in heads], f"{kind} layer {layer}: which word attends to which"
    return draw_head_lines(weights, rows, columns, names, title)


def maps_picture(trace: Trace, unit: str) -> Figure:
    """Draw all heads of all layers."""
    kinds = []
    for kind in KINDS:
        layers = [
            labelled_weights(attention_map.weights(), trace, kind, unit)
            for attention_map in trace.attention
            if attention_map.kind == kind
        ]
        if layers:
            kinds.append(HeadWeights(kind, np.stack([weights for weights, _, _ in layers]), *layers[0][1:]))
    return draw_head_grid(kinds)


def labelled_weights(
    weights: Float[Any, "H Q K"], trace: Trace, kind: str, unit: str
) -> tuple[Float[np.ndarray, "H _ _"], list[str], list[str]]:
    """Return weights by token as they are, or by word, and the names of rows and columns."""
    queries, keys = sides(trace, kind)
    if unit == "piece":
        return as_array(weights), list(queries), list(keys)
    rows, columns = group_words(queries), group_words(keys)
    return merge_words(as_array(weights), rows, columns), [word.text for word in rows], [word.text for word in columns]


def show_heatmaps(
    matrices: Any,
    xlabel: str,
    ylabel: str,
    titles: Sequence[str] | None = None,
    figsize: tuple[float | int, float | int] | None = None,
    cmap: str = "Reds",
) -> None:
    """Show matrices of shape (rows, columns, queries, keys), tensors or arrays, a title above each column.

    As in the book, but all in one scale of colours. `regard.plot.heatmap.draw_heatmaps` gives the figure itself.
    """
    numbers = _checked(matrices)
    check_installed("heatmaps", "matplotlib", "IPython")
    if cmap not in mpl.colormaps:
        raise ValueError(f"cmap must be one of matplotlib's, such as Reds, Blues or viridis, got {cmap!r}")
    display.display(draw_heatmaps(numbers, xlabel, ylabel, titles, figsize, cmap))


def _checked(matrices: Any) -> Float[np.ndarray, "R C Q K"]:
    """Return the numbers, or say what shape they have instead."""
    matrices = as_array(matrices) if hasattr(matrices, "detach") else matrices
    numbers = np.asarray(matrices, dtype=np.float64)
    if numbers.ndim != 4 or 0 in numbers.shape:
        raise ValueError(f"matrices must have the shape (rows, columns, queries, keys), got {numbers.shape}")
    return numbers
