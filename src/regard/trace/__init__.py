"""A run becomes everything that can be seen in it."""

from regard.trace.file import load_trace
from regard.trace.hugging_face import trace_hf
from regard.trace.look import Look
from regard.trace.multihead import watch
from regard.trace.run import Traced, traced
from regard.trace.terms import Terms
from regard.trace.trace import Trace
from regard.trace.tree import Tree

__all__ = ["Look", "Terms", "Trace", "Traced", "Tree", "load_trace", "trace_hf", "traced", "watch"]
