"""A font that has Chinese characters: the machine's own, or the one that a package brings."""

import re
from importlib.util import find_spec
from pathlib import Path

from matplotlib import font_manager

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


def chinese_family() -> str | None:
    """Gives the name of a font family that draws Chinese, or None where there is none."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return next((family for family in FAMILIES if family in known), None) or _packaged_family()


def has_chinese(text: str) -> bool:
    """Tells whether a text needs such a font."""
    return _CHINESE.search(text) is not None


def _packaged_family() -> str | None:
    """Registers the font file inside zhplot, without importing that package: it would change matplotlib's settings."""
    spec = find_spec("zhplot")
    if spec is None or spec.origin is None:
        return None
    for path in sorted(Path(spec.origin).parent.glob("fonts/*.[to]tf")):
        font_manager.fontManager.addfont(path)
        return font_manager.FontProperties(fname=path).get_name()
    return None
