"""What a reader looked at when it answered: every attention in the window where the answer stands."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint.reading import QuestionReader
from regard.decode.answers import Found, make_reading
from regard.model.span_reader import SpanReader
from regard.text.passages import Window, cut_passage, make_passage
from regard.text.questions import Question
from regard.text.tokenizer import Tokenizer
from regard.trace.made import make_given
from regard.trace.private import private_copy
from regard.trace.recorded import RecordedLook
from regard.trace.tape import Tape
from regard.trace.trace import Trace
from regard.trace.words import Word, group_words


@dataclass(frozen=True, eq=False)
class AnswerTrace:
    """One window read again with everything written down: its attentions, its words, and which of them answer.

    The places of words are rows and columns of the looks.
    """

    trace: Trace
    question: list[Word]
    context: list[Word]
    answer: tuple[int, int]  # the context's words that answer, from … up to
    score: float  # of the answer, by this reading
    apart: float  # from the score in the run that found the answer


@dataclass(frozen=True, eq=False)
class Seen:
    """How question and context looked at each other, by the heads that are named; shares are of all that was looked at.

    The pieces of a word that is looked at are added, those of a word that looks are averaged.
    """

    heads: str
    to_context: Float[Tensor, "q c"]
    to_question: Float[Tensor, "c q"]


@torch.no_grad()
def trace_answer(reader: QuestionReader, question: Question, found: Found) -> AnswerTrace:
    """Reads the window of an answer once more, by itself, and keeps what each attention was given."""
    passage = make_passage(question, reader.tokenizer, reader.settings.windows)
    window = cut_passage(passage, 0, reader.settings.windows)[found.window]
    looks, start, end = _replayed(reader.model, window)
    pieces = reader.tokenizer.pieces([*window.ids, Tokenizer.eos_id], "src")
    first, last = (piece - window.first + window.offset for piece in found.pieces)
    asked = _words(pieces, 1, window.offset - 1)
    context = _words(pieces, window.offset, len(window.ids))
    answering = [n for n, word in enumerate(context) if word.places[0] <= last and word.places[-1] >= first]
    score = float(start[first] + end[last] - start[0] - end[0])
    trace = make_given(looks, pieces, (), text=question.text, output=found.text)
    return AnswerTrace(trace, asked, context, (answering[0], answering[-1] + 1), score, abs(score - found.score))


def look_between(seen: AnswerTrace, layer: int | None = None, head: int | None = None) -> Seen:
    """Gives what question and context words looked at in each other, by one head, one layer's or all heads' mean."""
    looks = seen.trace.encoder if layer is None else [seen.trace.look("encoder", layer)]
    each = [look.weights(head) if head is not None else look.weights().mean(0) for look in looks]
    weights = torch.stack(each).mean(0)
    named = "all layers" if layer is None else f"layer {layer}", "all heads" if head is None else f"head {head}"
    asked, context = seen.question, seen.context
    return Seen(", ".join(named), _shares(weights, asked, context), _shares(weights, context, asked))


def around(answer: tuple[int, int], n_words: int, reach: int) -> range:
    """Gives the words that stand around an answer, so many on either side."""
    return range(max(answer[0] - reach, 0), min(answer[1] + reach, n_words))


def _replayed(model: SpanReader, window: Window) -> tuple[tuple[RecordedLook, ...], Tensor, Tensor]:
    """Reads one window without padding."""
    copy, tape = private_copy(model), Tape()
    for number, layer in enumerate(copy.encoder.layers):
        tape.listen_to_heads(layer.attention, "encoder", number)  # pyright: ignore[reportArgumentType]
    reading = make_reading([window], width=len(window.ids) + 1).to(next(model.parameters()).device)
    start, end = copy(reading)
    return tuple(each.look() for each in tape.heard), start[0].cpu(), end[0].cpu()


def _words(pieces: Sequence[str], start: int, stop: int) -> list[Word]:
    """Groups the pieces from … up to into words, whose places are those in the whole window."""
    words = group_words(pieces[start:stop])
    return [Word(word.text, tuple(place + start for place in word.places)) for word in words]


def _shares(weights: Float[Tensor, "T T"], rows: Sequence[Word], columns: Sequence[Word]) -> Float[Tensor, "r c"]:
    by_word = torch.stack([weights[:, list(word.places)].sum(1) for word in columns], dim=1)
    return torch.stack([by_word[list(word.places)].mean(0) for word in rows])
