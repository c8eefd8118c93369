"""Questions whose answers stand in a text, from lines of JSON."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.text.lines import read_lines
from regard.text.pair import normalise

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
    moved = answers if plain == context else [_moved(answer, context, plain, where) for answer in answers]
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


def _moved(answer: Answer, context: str, plain: str, where: str) -> Answer:
    """Finds an answer again where white space was folded before it: the like of it that is nearest."""
    text, about = normalise(answer.text), len(normalise(context[: answer.start]))
    places = [match.start() for match in re.finditer(f"(?={re.escape(text)})", plain)]
    if not text or not places:
        raise ValueError(f"{where}: an answer must be there in normalised text as well, got {answer.text!r}")
    return Answer(text, min(places, key=lambda place: abs(place - about)))
