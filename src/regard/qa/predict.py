"""Answers, EM/F1, baselines."""

import random
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum, log1p

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import make_source
from regard.config import choose
from regard.data.normalise import guess_language
from regard.pipeline.translator import SENTENCE_END, cut
from regard.qa.data import Passage, Question, ReaderWindow, cut_passage, make_passage, to_characters
from regard.qa.model import QuestionReader, ReaderBatch, SpanReader

WIDTHS = 64  # batches are padded to multiples of this, so that there are few shapes
ROWS = 32  # windows read at once
GROUP = 64  # questions whose windows are sorted by length together


@dataclass(frozen=True)
class PredictedSpan:
    """A stretch of a context as an answer: characters from … up to, its share of all stretches, and where it stood."""

    text: str
    start: int
    stop: int
    probability: float
    score: float  # log-odds against there being no answer in its window
    window: int  # the first of the question's windows in which it had this score
    pieces: tuple[int, int]  # of the context, both included


@dataclass(frozen=True)
class Prediction:
    """The likeliest answers to a question, best first, and the chance that it has none in this text."""

    spans: tuple[PredictedSpan, ...]
    no_answer: float


def make_reader_batch(windows: Sequence[ReaderWindow], width: int | None = None) -> ReaderBatch:
    """Pads windows to a batch of the given width, or of one of a few."""
    longest = max(len(window.ids) for window in windows) + 1
    rounded = -(-longest // WIDTHS) * WIDTHS
    src = make_source([window.ids for window in windows], rounded if width is None else width)
    marks = torch.zeros(src.ids.shape, dtype=torch.int64)
    for row, window in zip(marks, windows, strict=True):
        row[: len(window.marks)] = torch.tensor(window.marks)
    return ReaderBatch(src, marks)


def answer_questions(reader: QuestionReader, questions: Sequence[Question], n_best: int = 1) -> Iterator[Prediction]:
    """Answers questions one after another, some of them read together; the model's device is the one it is on."""
    settings = reader.settings.windows
    for first in range(0, len(questions), GROUP):
        passages = [make_passage(each, reader.tokenizer, settings) for each in questions[first : first + GROUP]]
        windows = [cut_passage(passage, number, settings) for number, passage in enumerate(passages)]
        tables = iter(window_scores(reader.model, [each for some in windows for each in some], settings.longest))
        for question, passage, own in zip(questions[first:], passages, windows, strict=False):
            yield choose_spans(question, passage, own, [next(tables) for _ in own], n_best)


@torch.no_grad()
def window_scores(model: SpanReader, windows: Sequence[ReaderWindow], longest: int) -> list[Float[Tensor, "_ longest"]]:
    """Gives each window's scores of all stretches, those of like length read together."""
    device = next(model.parameters()).device
    order = sorted(range(len(windows)), key=lambda n: len(windows[n].ids))
    scores: dict[int, Tensor] = {}
    for some in (order[n : n + ROWS] for n in range(0, len(order), ROWS)):
        start, end = (each.cpu() for each in model(make_reader_batch([windows[n] for n in some]).to(device)))
        for row, n in enumerate(some):
            scores[n] = span_scores(start[row], end[row], windows[n], longest)
    return [scores[n] for n in range(len(windows))]


def span_scores(
    start: Float[Tensor, " S"], end: Float[Tensor, " S"], window: ReaderWindow, longest: int
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
    windows: Sequence[ReaderWindow],
    tables: Sequence[Float[Tensor, "_ longest"]],
    n_best: int,
) -> Prediction:
    """Picks the likeliest stretches of a whole context; one that stands in several windows has its best score."""
    longest = tables[0].shape[1]
    joint = tables[0].new_full((len(passage.ids), longest), -torch.inf)
    where = torch.zeros_like(joint, dtype=torch.int64)
    for number, (window, table) in enumerate(zip(windows, tables, strict=True)):
        here = slice(window.first, window.first + window.n_context)
        where[here] = torch.where(table > joint[here], number, where[here])
        joint[here] = torch.maximum(joint[here], table)
    shares = torch.cat([joint.flatten(), joint.new_zeros(1)]).softmax(0)
    best = shares[:-1].topk(min(n_best, int((joint > -torch.inf).sum())))
    spans = []
    for share, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, more = divmod(place, longest)
        pieces = (first, first + more)
        begin, stop = to_characters(passage.spans, pieces)
        text = question.context[begin:stop]
        score, window = float(joint.flatten()[place]), int(where.flatten()[place])
        spans.append(PredictedSpan(text, begin, stop, share, score, window, pieces))
    return Prediction(tuple(spans), float(shares[-1]))


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
class MatchRules:
    """How one answer is compared with one that is right."""

    exact: Callable[[str, str], bool]
    f1: Callable[[str, str], float]


def score_answers(predicted: Sequence[str], references: Sequence[Sequence[str]], rules: str) -> AnswerScores:
    """Compares each answer with the nearest of those that are right, and averages over all questions."""
    rule = choose(RULES, rules, "rules")
    if len(predicted) != len(references) or not predicted:
        raise ValueError(f"there must be one answer for each question, got {len(predicted)} and {len(references)}")
    exact = [max(rule.exact(one, other) for other in others) for one, others in zip(predicted, references, strict=True)]
    f1 = [max(rule.f1(one, other) for other in others) for one, others in zip(predicted, references, strict=True)]
    return AnswerScores(100 * sum(exact) / len(exact), 100 * sum(f1) / len(f1), rules, len(predicted))


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


def longest_common_substring(one: Sequence[str], other: Sequence[str]) -> int:
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
    return _f1(longest_common_substring(one, other), len(one), len(other))


def _squad_exact(given: str, right: str) -> bool:
    return plain_words(given) == plain_words(right)


def _cmrc_exact(given: str, right: str) -> bool:
    one, other = (text.lower().strip().translate(CMRC_SIGNS) for text in (given, right))
    return one == other


def _f1(shared: int, n_given: int, n_right: int) -> float:
    """Gives the harmonic mean of the shares `shared / n_given` and `shared / n_right`."""
    return 2 * shared / (n_given + n_right) if shared else 0.0


RULES = {"squad": MatchRules(_squad_exact, _squad_f1), "cmrc": MatchRules(_cmrc_exact, _cmrc_f1)}


Baseline = Callable[[Question], str]
MOST_WORDS = 8  # of an answer that chance draws; words are characters in Chinese


@dataclass(frozen=True)
class TokenSpan:
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
    units, asked = split_tokens(question.context), _words(question.text)
    worth = _worth(units, asked)
    stretches = list(_stretches(units, asked))
    if not stretches:
        return question.context
    first, stop = max(stretches, key=lambda each: (_worth_around(units, worth, each, len(asked)), each[0] - each[1]))
    return question.context[units[first].start : units[stop - 1].stop]


def overlap_sentence(question: Question) -> str:
    """Gives the sentence that shares most with the question, each different word counted by its rarity."""
    asked = _words(question.text)
    worth = _worth(split_tokens(question.context), asked)
    return max(_sentences(question), key=lambda sentence: fsum(worth[word] for word in asked & _words(sentence)))


def first_sentence(question: Question) -> str:
    """Gives the context's first sentence."""
    return _sentences(question)[0]


def random_span(question: Question, seed: int = 0) -> str:
    """Draws a stretch of a few words; the same question gets the same one."""
    chance = random.Random(f"{seed} {question.id} {question.text}")
    units = [unit for unit in split_tokens(question.context) if unit.word]
    first = chance.randrange(len(units))
    last = min(first + chance.randrange(MOST_WORDS), len(units) - 1)
    return question.context[units[first].start : units[last].stop]


BASELINES: dict[str, Baseline] = {
    "sliding window": overlap_span,
    "best sentence": overlap_sentence,
    "first sentence": first_sentence,
    "random span": random_span,
}


def split_tokens(text: str) -> list[TokenSpan]:
    """Cuts a text as CMRC 2018 compares it: Chinese by character, all else by word, signs by themselves."""
    return [
        TokenSpan(match[0].lower() if any(sign.isalnum() for sign in match[0]) else "", *match.span())
        for match in SEGMENT.finditer(text)
    ]


def _words(text: str) -> set[str]:
    return {unit.word for unit in split_tokens(text)} - {""}


def _worth(units: Sequence[TokenSpan], asked: set[str]) -> dict[str, float]:
    """Gives what each word of the question is worth where it stands in the context: less the more often it does."""
    counts = Counter(unit.word for unit in units)
    return {word: log1p(1 / counts[word]) if counts[word] else 0.0 for word in asked}


def _stretches(units: Sequence[TokenSpan], asked: set[str]) -> Iterator[tuple[int, int]]:
    """Gives the stretches of words that are neither punctuation nor the question's."""
    first = None
    for place, word in enumerate([*(unit.word for unit in units), ""]):
        taken = not word or word in asked
        if not taken and first is None:
            first = place
        if taken and first is not None:
            yield first, place
            first = None


def _worth_around(units: Sequence[TokenSpan], worth: dict[str, float], stretch: tuple[int, int], reach: int) -> float:
    """Gives what the question's words are worth that stand within reach of a stretch, each counted once.

    A set's order changes from one process to the next, and the last digit of a plain sum with it: ties would fall by
    chance.
    """
    near = units[max(stretch[0] - reach, 0) : stretch[1] + reach]
    return fsum(worth.get(word, 0.0) for word in {unit.word for unit in near})


def _sentences(question: Question) -> list[str]:
    return [part.strip() for part in cut(question.context, SENTENCE_END) if part.strip()]
