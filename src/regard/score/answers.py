"""Answers against those that are right: exact match and F1, by the rules of the sets they come from."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.config import choose
from regard.text.language import guess_language

ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
# What CMRC 2018 leaves out; its list has …… as one sign of two dots, which no single character is.
CMRC_SIGNS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# One Chinese character by itself, else what stands together: numbers with their point, words, signs.
SEGMENT = re.compile(r"[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]")


@dataclass(frozen=True)
class AnswerScores:
    """How good answers are, in percent, by which rules, over how many questions."""

    exact: float
    f1: float
    rules: str
    n: int


@dataclass(frozen=True)
class Rules:
    """How one answer is compared with one that is right."""

    exact: Callable[[str, str], bool]
    f1: Callable[[str, str], float]


def score_answers(given: Sequence[str], right: Sequence[Sequence[str]], rules: str) -> AnswerScores:
    """Compares each answer with the nearest of those that are right, and averages over all questions."""
    rule = choose(RULES, rules, "rules")
    if len(given) != len(right) or not given:
        raise ValueError(f"there must be one answer for each question, got {len(given)} and {len(right)}")
    exact = [max(rule.exact(one, other) for other in others) for one, others in zip(given, right, strict=True)]
    f1 = [max(rule.f1(one, other) for other in others) for one, others in zip(given, right, strict=True)]
    return AnswerScores(100 * sum(exact) / len(exact), 100 * sum(f1) / len(f1), rules, len(given))


def rules_for(contexts: Sequence[str]) -> str:
    """Names the rules by the script of the texts: CMRC 2018's for Chinese, else SQuAD's."""
    return "cmrc" if guess_language(contexts) == "zh" else "squad"


def plain_words(text: str) -> list[str]:
    """Gives the words that SQuAD's script compares: small letters, no punctuation, no English articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def segments(text: str) -> list[str]:
    """Gives what CMRC 2018's script compares: Chinese by character, all else by word, without its punctuation.

    The script has NLTK cut what is not Chinese; here words and numbers are cut by a rule of one line.
    """
    return SEGMENT.findall(text.lower().translate(CMRC_SIGNS))


def common_stretch(one: Sequence[str], other: Sequence[str]) -> int:
    """Gives the length of the longest stretch without a gap that two sequences share."""
    longest, before = 0, [0] * (len(other) + 1)
    for word in one:
        here = [0] + [before[j] + 1 if word == each else 0 for j, each in enumerate(other)]
        longest, before = max(longest, *here), here
    return longest


def _squad_f1(given: str, right: str) -> float:
    one, other = plain_words(given), plain_words(right)
    return _f1((Counter(one) & Counter(other)).total(), len(one), len(other))


def _cmrc_f1(given: str, right: str) -> float:
    one, other = segments(given), segments(right)
    return _f1(common_stretch(one, other), len(one), len(other))


def _squad_exact(given: str, right: str) -> bool:
    return plain_words(given) == plain_words(right)


def _cmrc_exact(given: str, right: str) -> bool:
    one, other = (text.lower().strip().translate(CMRC_SIGNS) for text in (given, right))
    return one == other


def _f1(shared: int, n_given: int, n_right: int) -> float:
    """Gives the harmonic mean of the shares `shared / n_given` and `shared / n_right`."""
    return 2 * shared / (n_given + n_right) if shared else 0.0


RULES = {"squad": Rules(_squad_exact, _squad_f1), "cmrc": Rules(_cmrc_exact, _cmrc_f1)}
