"""Making a figure in our style, and saving it whole or not at all."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.text import Text

from regard.plot.fonts import HINT, chinese_family, has_chinese

P = ParamSpec("P")

ENDINGS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, told apart with any colour vision.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLE: Any = {
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "font.size": 9.0,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    "savefig.dpi": 144,
}


def in_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Makes a drawing function use our style and a font for Chinese, and leave the caller's settings alone."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with style():
            return draw(*args, **kwargs)

    return styled


@contextmanager
def style() -> Iterator[None]:
    """Sets our style for a while."""
    family = chinese_family()
    families = ["DejaVu Sans"] if family is None else ["DejaVu Sans", family]
    with mpl.rc_context({**STYLE, "font.family": families}):
        yield


def check_ending(path: Path) -> None:
    """Raises ValueError for a file whose ending names no kind of figure we save, or whose folder does not exist."""
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"a figure's file must end in {', '.join(ENDINGS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder for {path.name!r} does not exist: {path.parent}")


def save_figure(figure: Figure, path: Path) -> None:
    """Saves as PNG, SVG or PDF by the file's ending; a file that was there is replaced once the new one is complete."""
    check_ending(path)
    check_font(figure)
    with TemporaryDirectory(dir=path.parent, prefix=".figure-") as folder, style():
        whole = Path(folder, path.name)
        figure.savefig(whole, format=path.suffix.lower()[1:])
        os.replace(whole, path)


def check_font(figure: Figure) -> None:
    """Warns where Chinese will be boxes."""
    texts = [text.get_text() for text in figure.findobj(Text)]  # pyright: ignore[reportAttributeAccessIssue]
    if chinese_family() is None and any(has_chinese(text) for text in texts):
        warnings.warn(HINT, stacklevel=3)
