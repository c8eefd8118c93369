"""A figure that a notebook displays by itself."""

from base64 import b64encode
from io import BytesIO
from typing import Any

from matplotlib.figure import Figure

from regard.plot.figure import check_font, style

CSS_DPI = 96  # pixels that browsers give an inch


class Drawing(Figure):
    """A figure that is shown without pyplot, whichever backend is set."""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Any:
        """Gives a sharp picture, and the size at which its letters have theirs."""
        return {"image/png": to_png(self), "text/plain": repr(self)}, {"image/png": shown_size(self)}


def to_png(figure: Figure) -> str:
    """Gives a figure as PNG in base64, as notebooks and HTML take it."""
    check_font(figure)
    file = BytesIO()
    with style():
        figure.savefig(file, format="png", metadata={"Software": None})
    return b64encode(file.getvalue()).decode("ascii")


def shown_size(figure: Figure) -> dict[str, int]:
    """Gives the pixels that a figure takes on a page."""
    width, height = (round(inches * CSS_DPI) for inches in figure.get_size_inches())
    return {"width": width, "height": height}
