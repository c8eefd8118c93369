"""Answers without a model: what word overlap, a first sentence or chance are worth."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum, log1p

from regard.decode.sentences import SENTENCE_END, cut
from regard.score.answers import SEGMENT
from regard.text.questions import Question

Guess = Callable[[Question], str]
MOST_WORDS = 8  # of an answer that chance draws; words are characters in Chinese


@dataclass(frozen=True)
class Unit:
    """A word or a Chinese character in small letters, or nothing for punctuation, and where it stands."""

    word: str
    start: int
    stop: int


def overlap_span(question: Question) -> str:
    """Gives the stretch without a word of the question around which most of the question stands.

    After the sliding window of Richardson et al. 2013 (MCTest), as SQuAD's paper measures it (arXiv:1606.05250): a
    window as long as the question goes over the context, and counts each different word that both have by
    `log(1 + 1 / its count in the context)`. There candidates come from a parser; here they are the stretches between
    punctuation and the question's own words, of equal ones the shortest.
    """
    units, asked = split_units(question.context), _words(question.text)
    worth = _worth(units, asked)
    stretches = list(_stretches(units, asked))
    if not stretches:
        return question.context
    first, stop = max(stretches, key=lambda each: (_worth_around(units, worth, each, len(asked)), each[0] - each[1]))
    return question.context[units[first].start : units[stop - 1].stop]


def overlap_sentence(question: Question) -> str:
    """Gives the sentence that shares most with the question, each different word counted by its rarity."""
    asked = _words(question.text)
    worth = _worth(split_units(question.context), asked)
    return max(_sentences(question), key=lambda sentence: fsum(worth[word] for word in asked & _words(sentence)))


def first_sentence(question: Question) -> str:
    """Gives the context's first sentence."""
    return _sentences(question)[0]


def random_span(question: Question, seed: int = 0) -> str:
    """Draws a stretch of a few words; the same question gets the same one."""
    chance = random.Random(f"{seed} {question.id} {question.text}")
    units = [unit for unit in split_units(question.context) if unit.word]
    first = chance.randrange(len(units))
    last = min(first + chance.randrange(MOST_WORDS), len(units) - 1)
    return question.context[units[first].start : units[last].stop]


GUESSES: dict[str, Guess] = {
    "sliding window": overlap_span,
    "best sentence": overlap_sentence,
    "first sentence": first_sentence,
    "random span": random_span,
}


def split_units(text: str) -> list[Unit]:
    """Cuts a text as CMRC 2018 compares it: Chinese by character, all else by word, signs by themselves."""
    return [
        Unit(match[0].lower() if any(sign.isalnum() for sign in match[0]) else "", *match.span())
        for match in SEGMENT.finditer(text)
    ]


def _words(text: str) -> set[str]:
    return {unit.word for unit in split_units(text)} - {""}


def _worth(units: Sequence[Unit], asked: set[str]) -> dict[str, float]:
    """Gives what each word of the question is worth where it stands in the context: less the more often it does."""
    counts = Counter(unit.word for unit in units)
    return {word: log1p(1 / counts[word]) if counts[word] else 0.0 for word in asked}


def _stretches(units: Sequence[Unit], asked: set[str]) -> Iterator[tuple[int, int]]:
    """Gives the stretches of words that are neither punctuation nor the question's."""
    first = None
    for place, word in enumerate([*(unit.word for unit in units), ""]):
        taken = not word or word in asked
        if not taken and first is None:
            first = place
        if taken and first is not None:
            yield first, place
            first = None


def _worth_around(units: Sequence[Unit], worth: dict[str, float], stretch: tuple[int, int], reach: int) -> float:
    """Gives what the question's words are worth that stand within reach of a stretch, each counted once.

    A set's order changes from one process to the next, and the last digit of a plain sum with it: ties would fall by
    chance.
    """
    near = units[max(stretch[0] - reach, 0) : stretch[1] + reach]
    return fsum(worth.get(word, 0.0) for word in {unit.word for unit in near})


def _sentences(question: Question) -> list[str]:
    return [part.strip() for part in cut(question.context, SENTENCE_END) if part.strip()]
