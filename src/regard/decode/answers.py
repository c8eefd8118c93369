"""Answers to questions: the likeliest stretches of a text, over all windows in which it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import make_source
from regard.checkpoint.reading import QuestionReader
from regard.model.span_reader import Reading, SpanReader
from regard.text.passages import Passage, Window, cut_passage, make_passage, to_characters
from regard.text.questions import Question

WIDTHS = 64  # batches are padded to multiples of this, so that there are few shapes
ROWS = 32  # windows read at once
GROUP = 64  # questions whose windows are sorted by length together


@dataclass(frozen=True)
class Found:
    """A stretch of a context as an answer: characters from … up to, its share of all stretches, and where it stood."""

    text: str
    start: int
    stop: int
    probability: float
    score: float  # log-odds against there being no answer in its window
    window: int  # the first of the question's windows in which it had this score
    pieces: tuple[int, int]  # of the context, both included


@dataclass(frozen=True)
class Answers:
    """The likeliest answers to a question, best first, and the chance that it has none in this text."""

    found: tuple[Found, ...]
    nowhere: float


def make_reading(windows: Sequence[Window], width: int | None = None) -> Reading:
    """Pads windows to a batch of the given width, or of one of a few."""
    longest = max(len(window.ids) for window in windows) + 1
    rounded = -(-longest // WIDTHS) * WIDTHS
    src = make_source([window.ids for window in windows], rounded if width is None else width)
    marks = torch.zeros(src.ids.shape, dtype=torch.int64)
    for row, window in zip(marks, windows, strict=True):
        row[: len(window.marks)] = torch.tensor(window.marks)
    return Reading(src, marks)


def answer_questions(reader: QuestionReader, questions: Sequence[Question], n_best: int = 1) -> Iterator[Answers]:
    """Answers questions one after another, some of them read together; the model's device is the one it is on."""
    settings = reader.settings.windows
    for first in range(0, len(questions), GROUP):
        passages = [make_passage(each, reader.tokenizer, settings) for each in questions[first : first + GROUP]]
        windows = [cut_passage(passage, number, settings) for number, passage in enumerate(passages)]
        tables = iter(window_scores(reader.model, [each for some in windows for each in some], settings.longest))
        for question, passage, cut in zip(questions[first:], passages, windows, strict=False):
            yield choose_spans(question, passage, cut, [next(tables) for _ in cut], n_best)


@torch.no_grad()
def window_scores(model: SpanReader, windows: Sequence[Window], longest: int) -> list[Float[Tensor, "_ longest"]]:
    """Gives each window's scores of all stretches, those of like length read together."""
    device = next(model.parameters()).device
    order = sorted(range(len(windows)), key=lambda n: len(windows[n].ids))
    found: dict[int, Tensor] = {}
    for some in (order[n : n + ROWS] for n in range(0, len(order), ROWS)):
        start, end = (each.cpu() for each in model(make_reading([windows[n] for n in some]).to(device)))
        for row, n in enumerate(some):
            found[n] = span_scores(start[row], end[row], windows[n], longest)
    return [found[n] for n in range(len(windows))]


def span_scores(
    start: Float[Tensor, " S"], end: Float[Tensor, " S"], window: Window, longest: int
) -> Float[Tensor, "K longest"]:
    """Gives for each context piece and each length the log-odds of that stretch against there being no answer here.

    `start[i] + end[j] − start[0] − end[0]`: every window is measured against its own first token, so windows compare.
    """
    begins, ends = (each[window.offset : len(window.ids)] for each in (start, end))
    padded = torch.cat([ends, ends.new_full((longest - 1,), -torch.inf)])
    return begins[:, None] + padded.unfold(0, longest, 1) - start[0] - end[0]


def choose_spans(
    question: Question,
    passage: Passage,
    windows: Sequence[Window],
    tables: Sequence[Float[Tensor, "_ longest"]],
    n_best: int,
) -> Answers:
    """Picks the likeliest stretches of a whole context; one that stands in several windows has its best score."""
    longest = tables[0].shape[1]
    joint = tables[0].new_full((len(passage.ids), longest), -torch.inf)
    where = torch.zeros_like(joint, dtype=torch.int64)
    for number, (window, table) in enumerate(zip(windows, tables, strict=True)):
        here = slice(window.first, window.first + window.n_read)
        where[here] = torch.where(table > joint[here], number, where[here])
        joint[here] = torch.maximum(joint[here], table)
    shares = torch.cat([joint.flatten(), joint.new_zeros(1)]).softmax(0)
    best = shares[:-1].topk(min(n_best, int((joint > -torch.inf).sum())))
    found = []
    for share, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, more = divmod(place, longest)
        pieces = (first, first + more)
        begin, stop = to_characters(passage.spans, pieces)
        text = question.context[begin:stop]
        score, window = float(joint.flatten()[place]), int(where.flatten()[place])
        found.append(Found(text, begin, stop, share, score, window, pieces))
    return Answers(tuple(found), float(shares[-1]))
