"""What a run did: `regard.trace(pipeline, text)` is this room's verb."""

import sys
from types import ModuleType
from typing import Any

from regard.trace.attention import AttentionMap
from regard.trace.decompose import Terms
from regard.trace.external import watch
from regard.trace.file import load_trace
from regard.trace.hugging_face import report_hf_heads, trace_hf
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


class _CallableTrace(ModuleType):
    """`regard.trace` is this room, and the verb that users call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Trace:
        return trace(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableTrace
