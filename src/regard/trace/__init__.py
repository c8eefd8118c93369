"""What a run did: `regard.trace(pipeline, text)` is this room's verb."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.extras import needed_by
from regard.trace.attention_map import AttentionMap
from regard.trace.decompose import Terms
from regard.trace.file import load_trace
from regard.trace.run import TracedTranslation, trace, trace_texts
from regard.trace.search_tree import SearchTree
from regard.trace.trace import Trace

__all__ = [
    "AttentionMap",
    "SearchTree",
    "Terms",
    "Trace",
    "TracedTranslation",
    "load_trace",
    "report_hf_heads",
    "trace",
    "trace_hf",
    "trace_texts",
    "watch",
]


if TYPE_CHECKING:
    from regard.trace.external import watch
    from regard.trace.hugging_face import report_hf_heads, trace_hf

# Looks at models of other people, which are PyTorch's.
_HOMES = {"report_hf_heads": "hugging_face", "trace_hf": "hugging_face", "watch": "external"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.trace' has no attribute {name!r}")
    with needed_by(f"regard.trace.{name}"):
        return getattr(import_module(f"regard.trace.{_HOMES[name]}"), name)


class _CallableTrace(ModuleType):
    """`regard.trace` is this room, and the verb that users call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Trace:
        return trace(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableTrace
