"""Questions with their contexts, windows of them, and generated facts."""

import json
import random
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.files import read_lines
from regard.data.normalise import is_unspaced, normalise
from regard.data.tokenizer import Tokenizer

LINE = "an object with strings for question and context and a list of answers, each with a text and its start"


@dataclass(frozen=True)
class Answer:
    """A span of a context: its text and its first character."""

    text: str
    start: int

    @property
    def stop(self) -> int:
        """The end of the span, exclusive."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question, its context, and the reference answers, of which the first is trained on."""

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    where: str = ""  # the file and line it comes from


def read_questions(sources: Iterable[str]) -> list[Question]:
    """Read an object from each line of some files: `question`, `context`, `answers` of `text` and `start`, `id`."""
    questions = [
        _read(line, f"{source}, line {number}")
        for source in sources
        for number, line in enumerate(read_lines(source), start=1)
        if line.strip()
    ]
    if not questions:
        raise ValueError(f"there must be 1 question or more, got none in {', '.join(sources) or 'no files'}")
    return questions


def make_question(id_: str, text: str, context: str, answers: Sequence[Answer], where: str = "") -> Question:
    """Return a question with normalised text, its answers moved accordingly."""
    plain = normalise(context)
    if not plain:  # a question may be empty: CMRC's trial set has one
        raise ValueError(f"{where}: a context must have words, got {context[:30]!r}")
    for answer in answers:
        _check(answer, context, where)
    moved = answers if plain == context else [_move_answer(answer, context, plain, where) for answer in answers]
    return Question(id_, normalise(text), plain, tuple(moved), where)


def split_questions(questions: Sequence[Question], share: float) -> tuple[list[Question], list[Question]]:
    """Split off the questions about the last contexts, about `share` of them; no context is on both sides."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    n = min(max(round(len(contexts) * share), 1), len(contexts) - 1)
    if n < 1:
        raise ValueError(f"splitting questions needs 2 contexts or more, got {len(contexts)}: name both files")
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
            f"{where}: the answer {answer.text!r} must be in its context at character {answer.start}, "
            f"got {there!r} there"
        )


def _move_answer(answer: Answer, context: str, plain: str, where: str) -> Answer:
    """Find an answer after white space before it was collapsed: the nearest occurrence of its text."""
    text, about = normalise(answer.text), len(normalise(context[: answer.start]))
    starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", plain)]
    if not text or not starts:
        raise ValueError(f"{where}: an answer must also be in the normalised context, got {answer.text!r}")
    return Answer(text, min(starts, key=lambda start: abs(start - about)))


QUESTION, CONTEXT, SHARED = (
    0,
    1,
    2,
)  # marks: question and special tokens, context, context tokens that the question has too
N_MARKS = 3
N_SPECIAL = 3  # BOS, and an EOS after question and context
NO_ANSWER = (0, 0)  # the label of a window without the answer: its BOS

Span = tuple[int, int]


@dataclass(frozen=True)
class WindowSettings:
    """The windows that are read at once."""

    size: int = 384  # tokens of a window: the question, the context and special tokens
    stride: int = 256  # context tokens from the start of one window to that of the next
    question: int = 64  # tokens of a question; longer ones are truncated
    longest: int = 48  # tokens of an answer


@dataclass(frozen=True)
class ReaderWindow:
    """A question and a part of its context: BOS, the question, EOS, the part; the last EOS is added later."""

    question: int  # its index
    ids: list[int]
    marks: list[int]
    offset: int  # of the context in the ids
    first: int  # index in the context of the window's first context token
    label: Span  # first and last id of the answer, inclusive

    @property
    def n_context(self) -> int:
        """The number of context tokens."""
        return len(self.ids) - self.offset


@dataclass(frozen=True)
class Passage:
    """A tokenized question and context, before they are cut into windows."""

    question: list[int]
    ids: list[int]
    spans: list[Span]  # characters of each context token
    marks: list[int]
    label: Span | None  # first and last token of the answer, inclusive


def check_windows(settings: WindowSettings) -> None:
    """Raise ValueError for windows that are empty, or that could split an answer."""
    if min(settings.size, settings.stride, settings.question, settings.longest) < 1:
        raise ValueError(f"sizes of windows must be 1 or more, got {settings}")
    most = settings.size - settings.question - N_SPECIAL - settings.longest + 1
    if settings.stride > most:
        raise ValueError(
            "windows.stride must be small enough for every answer to be in one window, at most size − question − "
            f"longest − {N_SPECIAL - 1} = {most}, got {settings.stride}"
        )


def make_passage(question: Question, tokenizer: Tokenizer, settings: WindowSettings) -> Passage:
    """Tokenize a question and its context with the tokenizer's source side."""
    tokens = tokenizer.encode(question.text, "src")[: settings.question]
    ids, spans = tokenizer.encode(question.context, "src"), tokenizer.spans(question.context, "src")
    shared = shared_pieces(tokenizer.pieces(tokens, "src"), tokenizer.pieces(ids, "src"), question.text)
    answer = next(iter(question.answers), None)
    label = None if answer is None else to_pieces(spans, (answer.start, answer.stop))
    return Passage(tokens, ids, spans, [SHARED if each else CONTEXT for each in shared], label)


def cut_passage(passage: Passage, number: int, settings: WindowSettings) -> list[ReaderWindow]:
    """Cut a passage into overlapping windows; one without the whole answer gets the label NO_ANSWER."""
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
    """Return the starts of windows that cover n tokens, `stride` apart."""
    return range(0, max(n - room, 0) + stride, stride)


def to_pieces(spans: Sequence[Span], characters: Span) -> Span:
    """Return the first and the last piece that overlap a span of characters, inclusive."""
    start, stop = characters
    first = bisect_right([end for _, end in spans], start)
    last = bisect_left([begin for begin, _ in spans], stop) - 1
    return first, max(first, last)


def to_characters(spans: Sequence[Span], pieces: Span) -> Span:
    """Return the characters from the first piece to the end of the last."""
    first, last = pieces
    return spans[first][0], spans[last][1]


def shared_pieces(question_pieces: Sequence[str], context_pieces: Sequence[str], question: str) -> list[bool]:
    """Tell for each piece of a context whether the question has it too.

    Scripts without spaces are segmented differently in either, so there a piece counts if the question contains its
    text; elsewhere the question must have the same piece. Punctuation does not count.
    """
    same, lower = set(question_pieces), question.lower()
    return [
        any(character.isalnum() for character in piece)
        and (piece in same or (any(map(is_unspaced, piece)) and piece.strip("▁").lower() in lower))
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
# A statement, its question, and the possible values.
FACTS = (
    ("{name} lives in {value}.", "Where does {name} live?", PLACES),
    ("{name} likes the colour {value}.", "Which colour does {name} like?", COLOURS),
    ("{name} works as a {value}.", "What is {name} by profession?", JOBS),
)


def make_facts(n: int, seed: int, people: int = 3) -> list[Question]:
    """Generate texts that state the place, the colour and the profession of some people, in any order, and ask for one.

    Every text has as many wrong answers of the same kind as there are other people, so a reader has to find both the
    person and the relation.
    """
    rng = random.Random(seed)
    return [_make_fact(rng, f"facts-{seed}-{number}", people) for number in range(n)]


def _make_fact(rng: random.Random, id_: str, people: int) -> Question:
    names = rng.sample(NAMES.split(), people)
    facts = [(name, kind, value) for kind in range(len(FACTS)) for name, value in _draw_values(rng, names, kind)]
    rng.shuffle(facts)
    sentences = [FACTS[kind][0].format(name=name, value=value) for name, kind, value in facts]
    target = rng.randrange(len(facts))
    name, kind, value = facts[target]
    start = sum(len(sentence) + 1 for sentence in sentences[:target]) + sentences[target].rindex(value)
    return make_question(id_, FACTS[kind][1].format(name=name), " ".join(sentences), [Answer(value, start)])


def _draw_values(rng: random.Random, names: Sequence[str], kind: int) -> list[tuple[str, str]]:
    return list(zip(names, rng.sample(FACTS[kind][2].split(), len(names)), strict=True))
