"""Marked-up text: tags and placeholders are taken out, and put back where their words went in the translation."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["KINDS", "stream_marked", "strip_markup", "translate_marked"]

if TYPE_CHECKING:
    from regard.markup.parse import KINDS, strip_markup
    from regard.markup.translate import stream_marked, translate_marked

# A plain translation waits for none of it; what reads a run again needs NumPy.
_HOMES = {"KINDS": "parse", "strip_markup": "parse", "stream_marked": "translate", "translate_marked": "translate"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.markup' has no attribute {name!r}")
    return getattr(import_module(f"regard.markup.{_HOMES[name]}"), name)
