"""Questions, passages, windows, toy facts."""

import json
import random
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.files import read_lines
from regard.data.normalise import UNSPACED, normalise
from regard.data.tokenizer import Tokenizer

LINE = "an object with strings for question and context and a list of answers, each with a text and its start"


@dataclass(frozen=True)
class Answer:
    """A stretch of a context: its text, and the character at which it begins."""

    text: str
    start: int

    @property
    def stop(self) -> int:
        """Gives the character after the last."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question, the text that it is about, and the answers that are right, the first being the one to learn from."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    where: str = ""  # the file and line where it stands


def read_questions(sources: Iterable[str]) -> list[Question]:
    """Reads an object from each line of some files: `question`, `context`, `answers` of `text` and `start`, `id`."""
    found = [
        _read(line, f"{source}, line {number}")
        for source in sources
        for number, line in enumerate(read_lines(source), start=1)
        if line.strip()
    ]
    if not found:
        raise ValueError(f"there must be 1 question or more, got none in {', '.join(sources) or 'no files'}")
    return found


def make_question(id_: str, text: str, context: str, answers: Sequence[Answer], where: str = "") -> Question:
    """Brings a question into the form in which models read text; answers keep their places in it."""
    plain = normalise(context)
    if not plain:  # a question may be empty: CMRC's trial set has one that is
        raise ValueError(f"{where}: a context must have words, got {context[:30]!r}")
    for answer in answers:
        _check(answer, context, where)
    moved = answers if plain == context else [_move_answer(answer, context, plain, where) for answer in answers]
    return Question(id_, normalise(text), plain, tuple(moved), where)


def split_questions(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Splits off the questions about the last contexts, about so many; no context is on both sides."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    n = min(max(round(len(contexts) * share), 1), len(contexts) - 1)
    if n < 1:
        raise ValueError(f"to split questions there must be 2 contexts or more, got {len(contexts)}: name both files")
    last = set(contexts[-n:])
    return [q for q in questions if q.context not in last], [q for q in questions if q.context in last]


def _read(line: str, where: str) -> Question:
    try:
        row = json.loads(line)
        answers = [Answer(answer["text"], answer["start"]) for answer in row["answers"]]
        fields: list[Any] = [row["question"], row["context"], *(answer.text for answer in answers)]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{where}: each line must be {LINE}, got {line[:60]!r}") from error
    if not all(isinstance(field, str) for field in fields) or not all(type(each.start) is int for each in answers):
        raise ValueError(f"{where}: each line must be {LINE}, got {line[:60]!r}")
    if not answers:
        raise ValueError(f"{where}: a question must have 1 answer or more, got none")
    return make_question(str(row.get("id", where)), row["question"], row["context"], answers, where)


def _check(answer: Answer, context: str, where: str) -> None:
    there = context[max(answer.start, 0) : answer.stop]
    if not answer.text.strip() or answer.start < 0 or there != answer.text:
        raise ValueError(
            f"{where}: the answer {answer.text!r} must stand in its context from character {answer.start} on, "
            f"got {there!r} there"
        )


def _move_answer(answer: Answer, context: str, plain: str, where: str) -> Answer:
    """Finds an answer again where white space was folded before it: the like of it that is nearest."""
    text, about = normalise(answer.text), len(normalise(context[: answer.start]))
    places = [match.start() for match in re.finditer(f"(?={re.escape(text)})", plain)]
    if not text or not places:
        raise ValueError(f"{where}: an answer must be there in normalised text as well, got {answer.text!r}")
    return Answer(text, min(places, key=lambda place: abs(place - about)))


QUESTION, CONTEXT, SHARED = (
    0,
    1,
    2,
)  # marks: of the question and of signs, of the context, of the context where both have it
N_MARKS = 3
N_SPECIAL = 3  # one before the question, one between, one after the context
NO_ANSWER = (0, 0)  # the label of a window without the answer: the sign at its beginning

Span = tuple[int, int]


@dataclass(frozen=True)
class WindowSettings:
    """How much is read at once."""

    size: int = 384  # pieces of a window: the question, the context and the signs around them
    stride: int = 256  # context pieces from the beginning of one window to that of the next
    question: int = 64  # pieces of a question; what is longer loses its end
    longest: int = 48  # pieces of an answer


@dataclass(frozen=True)
class ReaderWindow:
    """A question and a stretch of its context: BOS, the question, EOS, the stretch; the last EOS is added later."""

    question: int  # its number
    ids: list[int]
    marks: list[int]
    offset: int  # of the stretch in the ids
    first: int  # the number of the stretch's first piece in the context
    label: Span  # where in the ids the answer begins and ends, both included

    @property
    def n_context(self) -> int:
        """Gives the number of context pieces."""
        return len(self.ids) - self.offset


@dataclass(frozen=True)
class Passage:
    """A question and its context in pieces, before they are cut into windows."""

    question: list[int]
    ids: list[int]
    spans: list[Span]  # characters of each context piece
    marks: list[int]
    label: Span | None  # the first and the last piece of the answer


def check_windows(settings: WindowSettings) -> None:
    """Raises ValueError for windows that could not be cut, or between which an answer would be lost."""
    if min(settings.size, settings.stride, settings.question, settings.longest) < 1:
        raise ValueError(f"windows must have sizes of 1 or more, got {settings}")
    most = settings.size - settings.question - N_SPECIAL - settings.longest + 1
    if settings.stride > most:
        raise ValueError(
            "windows.stride must be so small that every answer is whole in one window, at most size − question − "
            f"longest − {N_SPECIAL - 1} = {most}, got {settings.stride}"
        )


def make_passage(question: Question, tokenizer: Tokenizer, settings: WindowSettings) -> Passage:
    """Cuts a question and its context into the pieces of the tokenizer's source side."""
    asked = tokenizer.encode(question.text, "src")[: settings.question]
    ids, spans = tokenizer.encode(question.context, "src"), tokenizer.spans(question.context, "src")
    shared = shared_pieces(tokenizer.pieces(asked, "src"), tokenizer.pieces(ids, "src"), question.text)
    answer = next(iter(question.answers), None)
    label = None if answer is None else to_pieces(spans, (answer.start, answer.stop))
    return Passage(asked, ids, spans, [SHARED if each else CONTEXT for each in shared], label)


def cut_passage(passage: Passage, number: int, settings: WindowSettings) -> list[ReaderWindow]:
    """Cuts a passage into windows that overlap; a window without the whole answer is labelled so."""
    head = [Tokenizer.bos_id, *passage.question, Tokenizer.eos_id]
    room = settings.size - len(head) - 1
    windows = []
    for start in starts(len(passage.ids), room, settings.stride):
        stop = min(start + room, len(passage.ids))
        label = _label(passage.label, start, stop, len(head))
        marks = [QUESTION] * len(head) + passage.marks[start:stop]
        windows.append(ReaderWindow(number, head + passage.ids[start:stop], marks, len(head), start, label))
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


def shared_pieces(question_pieces: Sequence[str], context_pieces: Sequence[str], question: str) -> list[bool]:
    """Tells which pieces of a context the question has too.

    Chinese and its like is cut differently in either, so there a piece counts that the question has as a stretch of its
    own; elsewhere it is the piece itself. Signs alone are not counted.
    """
    same, lower = set(question_pieces), question.lower()
    return [
        any(sign.isalnum() for sign in piece)
        and (piece in same or (UNSPACED.search(piece) is not None and piece.strip("▁").lower() in lower))
        for piece in context_pieces
    ]


def _label(answer: Span | None, start: int, stop: int, offset: int) -> Span:
    if answer is None or answer[0] < start or answer[1] >= stop:
        return NO_ANSWER
    return answer[0] - start + offset, answer[1] - start + offset


NAMES = "Anna Ben Clara David Emma Felix Greta Henry Ida Jonas Klara Leo Maria Noah Olga Paul Rosa Simon Tara Victor"
PLACES = "Athens Berlin Cairo Delhi Geneva Havana Kyoto Lima Madrid Nairobi Oslo Prague Quito Rome Sofia Vienna"
COLOURS = "red green blue yellow white black orange purple brown grey pink silver"
JOBS = "baker doctor farmer gardener judge lawyer miller nurse painter pilot singer tailor teacher writer"
# What is said of somebody, how it is asked, and what it may be.
FACTS = (
    ("{name} lives in {value}.", "Where does {name} live?", PLACES),
    ("{name} likes the colour {value}.", "Which colour does {name} like?", COLOURS),
    ("{name} works as a {value}.", "What is {name} by profession?", JOBS),
)


def make_facts(n: int, seed: int, people: int = 3) -> list[Question]:
    """Draws texts that tell the place, the colour and the profession of some people, in any order, and asks for one.

    Every text has as many wrong answers of the same kind as there are other people, so that a reader has to find both
    the person and the relation.
    """
    chance = random.Random(seed)
    return [_make_fact(chance, f"facts-{seed}-{number}", people) for number in range(n)]


def _make_fact(chance: random.Random, id_: str, people: int) -> Question:
    names = chance.sample(NAMES.split(), people)
    facts = [(name, kind, value) for kind in range(len(FACTS)) for name, value in _draw_values(chance, names, kind)]
    chance.shuffle(facts)
    sentences = [FACTS[kind][0].format(name=name, value=value) for name, kind, value in facts]
    asked = chance.randrange(len(facts))
    name, kind, value = facts[asked]
    start = sum(len(sentence) + 1 for sentence in sentences[:asked]) + sentences[asked].rindex(value)
    return make_question(id_, FACTS[kind][1].format(name=name), " ".join(sentences), [Answer(value, start)])


def _draw_values(chance: random.Random, names: Sequence[str], kind: int) -> list[tuple[str, str]]:
    return list(zip(names, chance.sample(FACTS[kind][2].split(), len(names)), strict=True))
