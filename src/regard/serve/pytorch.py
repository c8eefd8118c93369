"""What routes compute with PyTorch: imported as one, when a route first needs any of it."""

from regard.align.heads import load_shown_heads
from regard.qa.model import load_reader
from regard.qa.predict import answer_questions
from regard.qa.view import trace_answer
from regard.serve.lessons import compare_codes, layer_lesson, position_lesson, regression_lesson
from regard.serve.serialize import make_head, make_view, render_html, round_tensor
from regard.trace.run import trace_generation, trace_part, trace_tokens

__all__ = [
    "answer_questions",
    "compare_codes",
    "layer_lesson",
    "load_reader",
    "load_shown_heads",
    "make_head",
    "make_view",
    "position_lesson",
    "regression_lesson",
    "render_html",
    "round_tensor",
    "trace_answer",
    "trace_generation",
    "trace_part",
    "trace_tokens",
]
