"""A run becomes everything that can be seen in it."""

from regard.trace.attention import Look
from regard.trace.decompose import Terms
from regard.trace.external import trace_hf, watch
from regard.trace.file import load_trace
from regard.trace.run import Traced, traced
from regard.trace.search_tree import Tree
from regard.trace.trace import Trace

__all__ = ["Look", "Terms", "Trace", "Traced", "Tree", "load_trace", "trace_hf", "traced", "watch"]
