"""The view inside a notebook, and the names that people know from other tools."""

from regard.notebook.bertviz import head_view, model_view
from regard.notebook.display import TraceDisplay, show_heatmaps, show_trace

__all__ = ["TraceDisplay", "head_view", "model_view", "show_heatmaps", "show_trace"]
