"""The trace and the tables of an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from rich.table import Table
from rich.text import Text
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.qa.data import Question, ReaderWindow, cut_passage, make_passage
from regard.qa.model import QuestionReader, SpanReader
from regard.qa.predict import AnswerScores, PredictedSpan, Prediction, make_reader_batch
from regard.shapes import Float
from regard.terminal import QUIET, shorten
from regard.trace.attention import RecordedAttention
from regard.trace.external import trace_from_attention
from regard.trace.replay import Recorder, private_copy
from regard.trace.summary import WordTokens, group_words
from regard.trace.trace import Trace


@dataclass(frozen=True, eq=False)
class AnswerTrace:
    """A replay of one window: its attention, its words, and which of them are the answer.

    Positions of words are rows and columns of the attention weights.
    """

    trace: Trace
    question: list[WordTokens]
    context: list[WordTokens]
    answer: tuple[int, int]  # words of the context, start and end
    score: float  # of the answer, in this replay
    score_difference: float  # from the score of the prediction


@dataclass(frozen=True, eq=False)
class AnswerAttention:
    """Attention between question and context by word, for the named heads.

    Weights are summed over the tokens of a key word, and averaged over those of a query word.
    """

    heads: str
    to_context: Float[Tensor, "q c"]
    to_question: Float[Tensor, "c q"]


@torch.no_grad()
def trace_answer(reader: QuestionReader, question: Question, span: PredictedSpan) -> AnswerTrace:
    """Replay the window of an answer, recording the inputs of each attention."""
    passage = make_passage(question, reader.tokenizer, reader.settings.windows)
    window = cut_passage(passage, 0, reader.settings.windows)[span.window]
    maps, start, end = _replay(reader.model, window)
    pieces = reader.tokenizer.pieces([*window.ids, Tokenizer.eos_id], "src")
    first, last = (piece - window.first + window.offset for piece in span.pieces)
    asked = _words(pieces, 1, window.offset - 1)
    context = _words(pieces, window.offset, len(window.ids))
    answering = [n for n, word in enumerate(context) if word.indices[0] <= last and word.indices[-1] >= first]
    score = float(start[first] + end[last] - start[0] - end[0])
    trace = trace_from_attention(maps, pieces, (), text=question.text, output=span.text)
    return AnswerTrace(trace, asked, context, (answering[0], answering[-1] + 1), score, abs(score - span.score))


def attention_between(answer: AnswerTrace, layer: int | None = None, head: int | None = None) -> AnswerAttention:
    """Return the attention between question and context words, of one head or the mean of a layer or of all."""
    maps = answer.trace.encoder if layer is None else [answer.trace.attention_map("encoder", layer)]
    weights = torch.stack([m.weights(head) if head is not None else m.weights().mean(0) for m in maps]).mean(0)
    named = "all layers" if layer is None else f"layer {layer}", "all heads" if head is None else f"head {head}"
    asked, context = answer.question, answer.context
    return AnswerAttention(
        ", ".join(named), _word_attention(weights, asked, context), _word_attention(weights, context, asked)
    )


def answer_neighbourhood(answer: tuple[int, int], n_words: int, reach: int) -> range:
    """Return the words of an answer and up to `reach` on either side."""
    return range(max(answer[0] - reach, 0), min(answer[1] + reach, n_words))


def _replay(model: SpanReader, window: ReaderWindow) -> tuple[tuple[RecordedAttention, ...], Tensor, Tensor]:
    copy, recorder = private_copy(model), Recorder()
    for number, layer in enumerate(copy.encoder.layers):
        recorder.record_heads(layer.attention, "encoder", number)  # pyright: ignore[reportArgumentType]
    batch = make_reader_batch([window], width=len(window.ids) + 1).to(next(model.parameters()).device)
    start, end = copy(batch)
    return tuple(each.attention_map() for each in recorder.recordings), start[0].cpu(), end[0].cpu()


def _words(pieces: Sequence[str], start: int, stop: int) -> list[WordTokens]:
    """Group pieces start … stop into words, with indices in the whole window."""
    words = group_words(pieces[start:stop])
    return [WordTokens(word.text, tuple(i + start for i in word.indices)) for word in words]


def _word_attention(
    weights: Float[Tensor, "T T"], rows: Sequence[WordTokens], columns: Sequence[WordTokens]
) -> Float[Tensor, "r c"]:
    by_word = torch.stack([weights[:, list(word.indices)].sum(1) for word in columns], dim=1)
    return torch.stack([by_word[list(word.indices)].mean(0) for word in rows])


MARKS = "»", "«"
WIDEST = 40  # characters of an answer


def mark_answer(context: str, start: int, stop: int, reach: int = 200) -> str:
    """Return a text with marks around an answer, cut to what is near it."""
    first, last = max(start - reach, 0), min(stop + reach, len(context))
    before, after = "…" if first else "", "…" if last < len(context) else ""
    opening, closing = MARKS
    answer = f"{opening}{context[start:stop]}{closing}"
    return f"{before}{context[first:start]}{answer}{context[stop:last]}{after}"


def answers_table(answers: Prediction) -> Table:
    """Return a table of the most probable answers."""
    table = Table(title="Most probable answers", **QUIET)
    table.add_column("answer", no_wrap=True)
    for column in ("probability", "characters"):
        table.add_column(column, justify="right", no_wrap=True)
    for span in answers.spans:
        table.add_row(Text(shorten(span.text, WIDEST)), f"{span.probability:.1%}", f"{span.start}–{span.stop}")
    table.add_row(Text("no answer in this text", "dim"), f"{answers.no_answer:.1%}", "")
    return table


def scores_table(scores: Mapping[str, AnswerScores], title: str) -> Table:
    """Return a table of exact match and F1 for each method."""
    table = Table(title=title, **QUIET)
    for column in ("answers by", "exact match", "F1"):
        table.add_column(column, justify="left" if column == "answers by" else "right", no_wrap=True)
    for name, each in scores.items():
        table.add_row(name, f"{each.exact:.1f}", f"{each.f1:.1f}")
    return table
