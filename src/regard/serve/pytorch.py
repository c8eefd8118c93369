"""What routes compute with PyTorch: imported as one, when a route first needs any of it."""

from regard.qa.model import load_reader
from regard.qa.predict import answer_questions
from regard.qa.view import trace_answer
from regard.serve.lessons import compare_codes, layer_lesson, position_lesson, regression_lesson
from regard.trace.generation import trace_generation, trace_tokens

__all__ = [
    "answer_questions",
    "compare_codes",
    "layer_lesson",
    "load_reader",
    "position_lesson",
    "regression_lesson",
    "trace_answer",
    "trace_generation",
    "trace_tokens",
]
