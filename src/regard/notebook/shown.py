"""A trace as a notebook shows it: the view, a picture where no view can be run, and words."""

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from regard.notebook.needs import INSTALL, lacking
from regard.trace.trace import Bundle, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VIEW = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True, eq=False)
class Shown:
    """A trace, what of it the view shows at first, and who draws the picture that stands in for it."""

    trace: Trace
    address: str
    draw: "Callable[[], Figure]"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        """Gives all three; where the view cannot be made, the words say what it lacks."""
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
        from regard.plot.drawing import shown_size, to_png

        figure = self.draw()
        data["image/png"] = to_png(figure)
        return shown_size(figure)

    def _add_view(self, data: dict[str, Any]) -> str:
        """Adds a widget, or says why there is none."""
        if lacking("anywidget"):
            return f"to look closer, install anywidget: {INSTALL}"
        from regard.notebook.widget import make_widget

        try:
            widget = make_widget(self.trace, self.address)
        except ValueError as error:
            return str(error)
        data[VIEW] = widget._repr_mimebundle_()[0][VIEW]  # pyright: ignore[reportOptionalSubscript]
        return ""


def show_trace(trace: Trace) -> Shown:
    """Shows a run: its translation, and what each word of it looked at."""
    return Shown(trace, "" if trace.cross else "view=attention", lambda: _overview(trace))


def _overview(trace: Trace) -> "Figure":
    from regard.notebook.pictures import run_picture  # which needs matplotlib

    return run_picture(trace)


def _image(png: str, size: dict[str, int]) -> str:
    if not png:
        return ""
    sides = " ".join(f'{side}="{pixels}"' for side, pixels in size.items())
    return f'<img alt="what was looked at" {sides} src="data:image/png;base64,{png}">'
