"""The view inside a notebook, and the names that people know from other tools."""

from regard.notebook.heatmaps import show_heatmaps
from regard.notebook.shown import Shown, show_trace
from regard.notebook.views import head_view, model_view

__all__ = ["Shown", "head_view", "model_view", "show_heatmaps", "show_trace"]
