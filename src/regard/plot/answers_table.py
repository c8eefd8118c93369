"""Answers to questions as tables in the terminal."""

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from regard.decode.answers import Answers
from regard.plot.table import QUIET
from regard.plot.words import shorten
from regard.score.answers import AnswerScores

MARKS = "»", "«"
WIDEST = 40  # columns of an answer


def marked(context: str, start: int, stop: int, reach: int = 200) -> str:
    """Gives a text with marks around an answer, and no more of it than stands near."""
    first, last = max(start - reach, 0), min(stop + reach, len(context))
    before, after = "…" if first else "", "…" if last < len(context) else ""
    opening, closing = MARKS
    answer = f"{opening}{context[start:stop]}{closing}"
    return f"{before}{context[first:start]}{answer}{context[stop:last]}{after}"


def answers_table(answers: Answers) -> Table:
    """Lists the likeliest answers with their share of all stretches of the text."""
    table = Table(title="Likeliest answers", **QUIET)
    table.add_column("answer", no_wrap=True)
    for column in ("probability", "characters"):
        table.add_column(column, justify="right", no_wrap=True)
    for found in answers.found:
        table.add_row(Text(shorten(found.text, WIDEST)), f"{found.probability:.1%}", f"{found.start}–{found.stop}")
    table.add_row(Text("none in this text", "dim"), f"{answers.nowhere:.1%}", "")
    return table


def scores_table(scores: Mapping[str, AnswerScores], title: str) -> Table:
    """Lists exact match and F1 of each way of answering."""
    table = Table(title=title, **QUIET)
    for column in ("answers by", "exact match", "F1"):
        table.add_column(column, justify="left" if column == "answers by" else "right", no_wrap=True)
    for name, each in scores.items():
        table.add_row(name, f"{each.exact:.1f}", f"{each.f1:.1f}")
    return table
