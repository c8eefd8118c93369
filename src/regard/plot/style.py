"""Style, fonts, saving, notebooks; studies import this where matplotlib, which is optional, is not installed."""

import os
import re
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec

from regard.extras import require
from regard.terminal import escape, message

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In the order in which we would rather have them: open fonts first, then those of Windows and macOS.
FAMILIES = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)
HINT = (
    "this figure has Chinese text, and no font with Chinese characters was found: "
    "install one with `pip install 'regard[plot]'`, or on Debian and Ubuntu `apt install fonts-noto-cjk`"
)
_CHINESE = re.compile(r"[⺀-〿㐀-䶿一-鿿豈-﫿＀-￯]")


def load_matplotlib():
    """Import matplotlib, which is optional, with those of its modules that are used here."""
    import matplotlib.font_manager

    return matplotlib


def chinese_family() -> str | None:
    """Return the name of a font family that draws Chinese, or None where there is none."""
    known = {font.name for font in load_matplotlib().font_manager.fontManager.ttflist}
    return next((family for family in FAMILIES if family in known), None) or _packaged_family()


def has_chinese(text: str) -> bool:
    """Return whether a text needs such a font."""
    return _CHINESE.search(text) is not None


def _packaged_family() -> str | None:
    """Register the font file inside zhplot, without importing that package: it would change matplotlib's settings."""
    spec = find_spec("zhplot")
    if spec is None or spec.origin is None:
        return None
    fonts = load_matplotlib().font_manager
    for path in sorted(Path(spec.origin).parent.glob("fonts/*.[to]tf")):
        fonts.fontManager.addfont(path)
        return fonts.FontProperties(fname=path).get_name()
    return None


P = ParamSpec("P")

ENDINGS = (".png", ".svg", ".pdf")
# Okabe and Ito's colours, told apart with any colour vision.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
STYLE: Any = {
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


def in_style(draw: Callable[P, "Figure"]) -> Callable[P, "Figure"]:
    """Make a drawing function use our style and a font for Chinese, and leave the caller's settings alone."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        with style():
            return draw(*args, **kwargs)

    return styled


@contextmanager
def style() -> Iterator[None]:
    """Set our style for a while."""
    mpl, family = load_matplotlib(), chinese_family()
    families = ["DejaVu Sans"] if family is None else ["DejaVu Sans", family]
    with mpl.rc_context({**STYLE, "axes.prop_cycle": mpl.rcsetup.cycler(color=COLOURS), "font.family": families}):
        yield


def check_ending(path: Path) -> None:
    """Raise ValueError for a file whose ending names no kind of figure we save, or whose folder does not exist."""
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"a figure's file must end in {', '.join(ENDINGS)}, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder for {path.name!r} does not exist: {path.parent}")


def check_figure(path: Path | None) -> None:
    """Raise ValueError for a figure that could not be saved, before anything is computed."""
    if path is None:
        return
    require("matplotlib", "a figure")
    check_ending(path)


def save_figure(figure: "Figure", path: Path) -> None:
    """Save as PNG, SVG or PDF by the file's ending; a file that was there is replaced once the new one is complete."""
    check_ending(path)
    check_font(figure)
    with TemporaryDirectory(dir=path.parent, prefix=".figure-") as folder, style():
        whole = Path(folder, path.name)
        figure.savefig(whole, format=path.suffix.lower()[1:])
        os.replace(whole, path)


def save_and_report(figure: "Figure", path: Path) -> None:
    """Save a figure and say where."""
    save_figure(figure, path)
    message(f"[dim]figure saved as[/] {escape(str(path))}")


def check_font(figure: "Figure") -> None:
    """Warn where Chinese will be boxes."""
    texts = [text.get_text() for text in figure.findobj(load_matplotlib().text.Text)]  # pyright: ignore[reportAttributeAccessIssue]
    if chinese_family() is None and any(has_chinese(text) for text in texts):
        warnings.warn(HINT, stacklevel=3)


CSS_DPI = 96  # pixels that browsers give an inch


def new_figure(figsize: tuple[float | int, float | int]) -> "Figure":
    """Make an empty figure, as wide and high in inches as this."""
    from regard.plot.canvas import Drawing

    return Drawing(figsize=figsize)


def rgb(colour: str) -> tuple[float, float, float]:
    """Return the red, green and blue of `#rrggbb`, each from 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def to_png(figure: "Figure") -> str:
    """Return a figure as PNG in base64, as notebooks and HTML take it."""
    check_font(figure)
    file = BytesIO()
    with style():
        figure.savefig(file, format="png", metadata={"Software": None})
    return b64encode(file.getvalue()).decode("ascii")


def shown_size(figure: "Figure") -> dict[str, int]:
    """Return the pixels that a figure takes on a page."""
    width, height = (round(inches * CSS_DPI) for inches in figure.get_size_inches())
    return {"width": width, "height": height}
