"""Questions with their contexts in pieces: long contexts in overlapping windows, each behind its question."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from regard.text.questions import Question
from regard.text.tokenizer import Tokenizer
from regard.text.units import UNSPACED

ASKED, READ, SHARED = 0, 1, 2  # marks: of the question and of signs, of the context, of the context where both have it
N_MARKS = 3
SIGNS = 3  # one before the question, one between, one after the context
NOT_HERE = (0, 0)  # the label of a window without the answer: the sign at its beginning

Span = tuple[int, int]


@dataclass(frozen=True)
class WindowSettings:
    """How much is read at once."""

    size: int = 384  # pieces of a window: the question, the context and the signs around them
    stride: int = 256  # context pieces from the beginning of one window to that of the next
    question: int = 64  # pieces of a question; what is longer loses its end
    longest: int = 48  # pieces of an answer


@dataclass(frozen=True)
class Window:
    """A question and a stretch of its context: BOS, the question, EOS, the stretch; the last EOS is added later."""

    question: int  # its number
    ids: list[int]
    marks: list[int]
    offset: int  # of the stretch in the ids
    first: int  # the number of the stretch's first piece in the context
    label: Span  # where in the ids the answer begins and ends, both included

    @property
    def n_read(self) -> int:
        """Gives the number of context pieces."""
        return len(self.ids) - self.offset


@dataclass(frozen=True)
class Passage:
    """A question and its context in pieces, before they are cut into windows."""

    asked: list[int]
    ids: list[int]
    spans: list[Span]  # characters of each context piece
    marks: list[int]
    label: Span | None  # the first and the last piece of the answer


def check_windows(settings: WindowSettings) -> None:
    """Raises ValueError for windows that could not be cut, or between which an answer would be lost."""
    if min(settings.size, settings.stride, settings.question, settings.longest) < 1:
        raise ValueError(f"windows must have sizes of 1 or more, got {settings}")
    most = settings.size - settings.question - SIGNS - settings.longest + 1
    if settings.stride > most:
        raise ValueError(
            "windows.stride must be so small that every answer is whole in one window, at most size − question − "
            f"longest − {SIGNS - 1} = {most}, got {settings.stride}"
        )


def make_passage(question: Question, tokenizer: Tokenizer, settings: WindowSettings) -> Passage:
    """Cuts a question and its context into the pieces of the tokenizer's source side."""
    asked = tokenizer.encode(question.text, "src")[: settings.question]
    ids, spans = tokenizer.encode(question.context, "src"), tokenizer.spans(question.context, "src")
    shared = shared_pieces(tokenizer.pieces(asked, "src"), tokenizer.pieces(ids, "src"), question.text)
    answer = next(iter(question.answers), None)
    label = None if answer is None else to_pieces(spans, (answer.start, answer.stop))
    return Passage(asked, ids, spans, [SHARED if each else READ for each in shared], label)


def cut_passage(passage: Passage, number: int, settings: WindowSettings) -> list[Window]:
    """Cuts a passage into windows that overlap; a window without the whole answer is labelled so."""
    head = [Tokenizer.bos_id, *passage.asked, Tokenizer.eos_id]
    room = settings.size - len(head) - 1
    windows = []
    for start in starts(len(passage.ids), room, settings.stride):
        stop = min(start + room, len(passage.ids))
        label = _label(passage.label, start, stop, len(head))
        marks = [ASKED] * len(head) + passage.marks[start:stop]
        windows.append(Window(number, head + passage.ids[start:stop], marks, len(head), start, label))
    return windows


def starts(n: int, room: int, stride: int) -> range:
    """Tells where windows begin so that they cover n pieces: each `stride` after the one before, the last reaching."""
    return range(0, max(n - room, 0) + stride, stride)


def to_pieces(spans: Sequence[Span], characters: Span) -> Span:
    """Gives the first and the last piece that have a character of a stretch, both included."""
    start, stop = characters
    first = bisect_right([end for _, end in spans], start)
    last = bisect_left([begin for begin, _ in spans], stop) - 1
    return first, max(first, last)


def to_characters(spans: Sequence[Span], pieces: Span) -> Span:
    """Gives the characters from the first piece to the end of the last."""
    first, last = pieces
    return spans[first][0], spans[last][1]


def shared_pieces(asked: Sequence[str], read: Sequence[str], question: str) -> list[bool]:
    """Tells which pieces of a context the question has too.

    Chinese and its like is cut differently in either, so there a piece counts that the question has as a stretch of its
    own; elsewhere it is the piece itself. Signs alone are not counted.
    """
    same, lower = set(asked), question.lower()
    return [
        any(sign.isalnum() for sign in piece)
        and (piece in same or (UNSPACED.search(piece) is not None and piece.strip("▁").lower() in lower))
        for piece in read
    ]


def _label(answer: Span | None, start: int, stop: int, offset: int) -> Span:
    if answer is None or answer[0] < start or answer[1] >= stop:
        return NOT_HERE
    return answer[0] - start + offset, answer[1] - start + offset
