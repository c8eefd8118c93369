"""Regard: train a sequence model with attention, run it fast, and look inside the very model that just ran."""

import sys
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.extras import importing, needed_by

__version__ = "0.1.0"

# Names are fetched when first used, so that `regard --help` need not wait for torch.
_HOMES = {
    "ATTENTION": "regard.attention",
    "POSITION": "regard.position",
    "HeadsSettings": "regard.config",
    "PartSettings": "regard.config",
    "Mask": "regard.mask",
    "MultiHeadAttention": "regard.model",
    "Settings": "regard.config",
    "Trace": "regard.trace",
    "TracedTranslation": "regard.trace",
    "Translator": "regard.pipeline.translator",
    "Generator": "regard.pipeline.generator",
    "Glossary": "regard.pipeline.glossary",
    "align": None,
    "build_heads": "regard.build",
    "build_model": "regard.build",
    "head_view": "regard.notebook",
    "load": "regard.pipeline",
    "load_trace": "regard.trace",
    "mask": None,
    "model_view": "regard.notebook",
    "report_heads": "regard.trace.head_report",
    "save_html": "regard.serve.serialize",
    "show_heatmaps": "regard.notebook",
    "show_trace": "regard.notebook",
    "trace": None,
    "trace_texts": "regard.trace",
    "translate_marked": "regard.markup",
}

__all__ = [
    "ATTENTION",
    "POSITION",
    "Generator",
    "Glossary",
    "HeadsSettings",
    "Mask",
    "MultiHeadAttention",
    "PartSettings",
    "Settings",
    "Trace",
    "TracedTranslation",
    "Translator",
    "align",
    "build_heads",
    "build_model",
    "head_view",
    "load",
    "load_trace",
    "mask",
    "model_view",
    "report_heads",
    "save_html",
    "show_heatmaps",
    "show_trace",
    "trace",
    "trace_texts",
    "translate_marked",
]

if TYPE_CHECKING:
    from regard import align, mask, trace
    from regard.attention import ATTENTION
    from regard.build import build_heads, build_model
    from regard.config import HeadsSettings, PartSettings, Settings
    from regard.markup import translate_marked
    from regard.mask import Mask
    from regard.model import MultiHeadAttention
    from regard.notebook import head_view, model_view, show_heatmaps, show_trace
    from regard.pipeline import load
    from regard.pipeline.generator import Generator
    from regard.pipeline.glossary import Glossary
    from regard.pipeline.translator import Translator
    from regard.position import POSITION
    from regard.serve.serialize import save_html
    from regard.trace import Trace, TracedTranslation, load_trace, trace_texts
    from regard.trace.head_report import report_heads


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    home = _HOMES[name]
    if name in {"Trace", "load_trace", "trace", "trace_texts"} and _in_notebook():
        with suppress(ImportError):  # what a notebook needs is optional
            import_module("regard.notebook")  # gives traces their display
    with needed_by(f"regard.{name}"), importing():
        return import_module(f"regard.{name}") if home is None else getattr(import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
