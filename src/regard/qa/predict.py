"""Predicting answers, exact match and F1, baselines."""

import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum, log1p

import torch
from torch import Tensor

from regard.batch import make_source
from regard.config import choose
from regard.data.normalise import SIGNS, guess_language
from regard.data.sentences import split_sentences
from regard.qa.data import Passage, Question, ReaderWindow, Span, cut_passage, make_passage, to_characters
from regard.qa.model import QuestionReader, ReaderBatch, SpanReader
from regard.shapes import Float

WIDTHS = 64  # batches are padded to multiples of this, so that there are few shapes
ROWS = 32  # windows read at once
GROUP = 64  # questions whose windows are sorted by length together


@dataclass(frozen=True)
class PredictedSpan:
    """A span of a context as an answer: its characters, its probability among spans of words, and its window."""

    text: str
    start: int
    stop: int
    probability: float
    score: float  # log-odds against no answer in its window
    window: int  # the first of the question's windows with this score
    pieces: tuple[int, int]  # first and last token of the context, inclusive


@dataclass(frozen=True)
class Prediction:
    """The most probable answers to a question, best first, and the probability that the context has none."""

    spans: tuple[PredictedSpan, ...]
    no_answer: float


def make_reader_batch(windows: Sequence[ReaderWindow], width: int | None = None) -> ReaderBatch:
    """Pad windows to a batch of the given width, or to a multiple of WIDTHS."""
    longest = max(len(window.ids) for window in windows) + 1
    rounded = -(-longest // WIDTHS) * WIDTHS
    src = make_source([window.ids for window in windows], rounded if width is None else width)
    marks = torch.zeros(src.ids.shape, dtype=torch.int64)
    for row, window in zip(marks, windows, strict=True):
        row[: len(window.marks)] = torch.tensor(window.marks)
    return ReaderBatch(src, marks)


def answer_questions(reader: QuestionReader, questions: Sequence[Question], n_best: int = 1) -> Iterator[Prediction]:
    """Yield the prediction for each question, in order; questions are batched, on the model's device."""
    settings = reader.settings.windows
    for first in range(0, len(questions), GROUP):
        passages = [make_passage(each, reader.tokenizer, settings) for each in questions[first : first + GROUP]]
        windows = [cut_passage(passage, number, settings) for number, passage in enumerate(passages)]
        tables = iter(window_scores(reader.model, [each for some in windows for each in some], settings.longest))
        for question, passage, own in zip(questions[first:], passages, windows, strict=False):
            yield choose_spans(question, passage, own, [next(tables) for _ in own], n_best)


@torch.no_grad()
def window_scores(model: SpanReader, windows: Sequence[ReaderWindow], longest: int) -> list[Float[Tensor, "_ longest"]]:
    """Return each window's scores of all spans; windows of like length are batched."""
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
    """Return for each context token and each length the log-odds of that span against no answer in the window.

    `start[i] + end[j] − start[0] − end[0]`: relative to the window's own first token, so scores of windows compare.
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
    """Return the most probable spans of whole words of a context; a span in several windows has its best score."""
    longest = tables[0].shape[1]
    joint = tables[0].new_full((len(passage.ids), longest), -torch.inf)
    where = torch.zeros_like(joint, dtype=torch.int64)
    for number, (window, table) in enumerate(zip(windows, tables, strict=True)):
        here = slice(window.first, window.first + window.n_context)
        where[here] = torch.where(table > joint[here], number, where[here])
        joint[here] = torch.maximum(joint[here], table)
    joint = keep_whole_words(joint, question.context, passage.spans)
    probabilities = torch.cat([joint.flatten(), joint.new_zeros(1)]).softmax(0)
    best = probabilities[:-1].topk(min(n_best, int((joint > -torch.inf).sum())))
    spans = []
    for probability, i in zip(best.values.tolist(), best.indices.tolist(), strict=True):
        first, more = divmod(i, longest)
        pieces = (first, first + more)
        begin, stop = to_characters(passage.spans, pieces)
        text = question.context[begin:stop]
        score, window = float(joint.flatten()[i]), int(where.flatten()[i])
        spans.append(PredictedSpan(text, begin, stop, probability, score, window, pieces))
    return Prediction(tuple(spans), float(probabilities[-1]))


def keep_whole_words(
    scores: Float[Tensor, "K longest"], context: str, spans: Sequence[Span]
) -> Float[Tensor, "K longest"]:
    """Return the scores with −∞ for spans that begin or end inside a word, unless there are no others.

    Of several spans with the same characters one is kept, the one that `to_pieces` returns for them: a piece that is
    only a space, or one byte of a character, shares its characters with the next.
    """
    starts, stops = zip(*spans, strict=True)
    first = [i == 0 or starts[i - 1] < starts[i] for i in range(len(spans))]
    last = [i == len(spans) - 1 or starts[i + 1] >= stops[i] for i in range(len(spans))]
    once = _keep(scores, first, last)
    whole = _keep(once, *([not inside_word(context, i) for i in side] for side in (starts, stops)))
    return next((each for each in (whole, once) if (each > -torch.inf).any()), scores)


def _keep(
    scores: Float[Tensor, "K longest"], begins: Sequence[bool], ends: Sequence[bool]
) -> Float[Tensor, "K longest"]:
    """Set −∞ where a span begins or ends with a piece that must not."""
    longest = scores.shape[1]
    padded = torch.tensor([*ends, *[False] * (longest - 1)])
    return scores.masked_fill(~(torch.tensor(begins)[:, None] & padded.unfold(0, longest, 1)), -torch.inf)


# Letters with a border on either side: scripts without spaces, and Hangul, whose particles are attached to words.
SEPARATE = re.compile(rf"[{SIGNS}\uac00-\ud7af]")


def inside_word(text: str, i: int) -> bool:
    """Tell whether a word, or a number with its point, goes on from character i − 1 to character i.

    Apostrophes and hyphens are borders: an answer may be Anna in Anna's, or Europe in l'Europe.
    """
    if not 0 < i < len(text):
        return False
    before, after = text[i - 1], text[i]
    if unicodedata.category(after)[0] == "M":
        return True
    if after in ".,":
        return before.isdigit() and text[i + 1 : i + 2].isdigit()
    if before in ".,":
        return after.isdigit() and text[max(i - 2, 0) : i - 1].isdigit()
    letters = (each.isalnum() or unicodedata.category(each)[0] == "M" for each in (before, after))
    return all(letters) and not SEPARATE.search(before + after)


ARTICLES = re.compile(r"\b(?:a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
# Ignored by CMRC 2018; its list has …… as one sign of two characters, which no single character matches.
CMRC_SIGNS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# One Chinese character, a number with its point, a word, or a punctuation mark.
SEGMENT = re.compile(r"[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]")


@dataclass(frozen=True)
class AnswerScores:
    """Scores of answers in percent, the rules they follow, and the number of questions."""

    exact: float
    f1: float
    rules: str
    n: int


@dataclass(frozen=True)
class MatchRules:
    """How an answer is compared with a reference."""

    exact: Callable[[str, str], bool]
    f1: Callable[[str, str], float]


def score_answers(predicted: Sequence[str], references: Sequence[Sequence[str]], rules: str) -> AnswerScores:
    """Compare each answer with its best-matching reference, and average over all questions."""
    rule = choose(RULES, rules, "rules")
    if len(predicted) != len(references) or not predicted:
        raise ValueError(f"there must be one answer for each question, got {len(predicted)} and {len(references)}")
    exact = [max(rule.exact(one, other) for other in others) for one, others in zip(predicted, references, strict=True)]
    f1 = [max(rule.f1(one, other) for other in others) for one, others in zip(predicted, references, strict=True)]
    return AnswerScores(100 * sum(exact) / len(exact), 100 * sum(f1) / len(f1), rules, len(predicted))


def rules_for(contexts: Sequence[str]) -> str:
    """Return the name of the rules for the script of the texts: CMRC 2018's for Chinese, else SQuAD's."""
    return "cmrc" if guess_language(contexts) == "zh" else "squad"


def plain_words(text: str) -> list[str]:
    """Return the words that SQuAD's script compares: lower case, no punctuation, no English articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def segments(text: str) -> list[str]:
    """Return what CMRC 2018's script compares: Chinese by character, all else by word, without its punctuation.

    The script uses NLTK for what is not Chinese; here words and numbers are split by a regular expression.
    """
    return SEGMENT.findall(text.lower().translate(CMRC_SIGNS))


def longest_common_substring(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest contiguous run that two sequences share."""
    longest, before = 0, [0] * (len(other) + 1)
    for word in one:
        here = [0] + [before[j] + 1 if word == each else 0 for j, each in enumerate(other)]
        longest, before = max(longest, *here), here
    return longest


def _squad_f1(predicted: str, reference: str) -> float:
    one, other = plain_words(predicted), plain_words(reference)
    return _f1((Counter(one) & Counter(other)).total(), len(one), len(other))


def _cmrc_f1(predicted: str, reference: str) -> float:
    one, other = segments(predicted), segments(reference)
    return _f1(longest_common_substring(one, other), len(one), len(other))


def _squad_exact(predicted: str, reference: str) -> bool:
    return plain_words(predicted) == plain_words(reference)


def _cmrc_exact(predicted: str, reference: str) -> bool:
    one, other = (text.lower().strip().translate(CMRC_SIGNS) for text in (predicted, reference))
    return one == other


def _f1(shared: int, n_predicted: int, n_reference: int) -> float:
    """Return the harmonic mean of precision `shared / n_predicted` and recall `shared / n_reference`."""
    return 2 * shared / (n_predicted + n_reference) if shared else 0.0


RULES = {"squad": MatchRules(_squad_exact, _squad_f1), "cmrc": MatchRules(_cmrc_exact, _cmrc_f1)}


Baseline = Callable[[Question], str]
MOST_WORDS = 8  # of a random span; words are characters in Chinese


@dataclass(frozen=True)
class TokenSpan:
    """A word or a Chinese character in lower case, or nothing for punctuation, and its span."""

    word: str
    start: int
    stop: int


def overlap_span(question: Question) -> str:
    """Return the span without words of the question that has the most of them around it.

    After the sliding window of Richardson et al. 2013 (MCTest), as in SQuAD's paper (arXiv:1606.05250): a window as
    long as the question slides over the context, and each distinct shared word counts
    `log(1 + 1 / its count in the context)`. There candidates come from a parser; here they are the spans between
    punctuation and the question's own words, of equal ones the shortest.
    """
    units, asked = split_tokens(question.context), _words(question.text)
    weights = _weights(units, asked)
    spans = list(_candidate_spans(units, asked))
    if not spans:
        return question.context
    first, stop = max(spans, key=lambda each: (_weight_around(units, weights, each, len(asked)), each[0] - each[1]))
    return question.context[units[first].start : units[stop - 1].stop]


def overlap_sentence(question: Question) -> str:
    """Return the sentence that shares most with the question, each distinct word weighted by its rarity."""
    asked = _words(question.text)
    weights = _weights(split_tokens(question.context), asked)
    return max(_sentences(question), key=lambda sentence: fsum(weights[word] for word in asked & _words(sentence)))


def first_sentence(question: Question) -> str:
    return _sentences(question)[0]


def random_span(question: Question, seed: int = 0) -> str:
    """Draw a span of a few words, the same for the same question."""
    rng = random.Random(f"{seed} {question.id} {question.text}")
    units = [unit for unit in split_tokens(question.context) if unit.word]
    first = rng.randrange(len(units))
    last = min(first + rng.randrange(MOST_WORDS), len(units) - 1)
    return question.context[units[first].start : units[last].stop]


BASELINES: dict[str, Baseline] = {
    "sliding window": overlap_span,
    "best sentence": overlap_sentence,
    "first sentence": first_sentence,
    "random span": random_span,
}


def split_tokens(text: str) -> list[TokenSpan]:
    """Split a text as CMRC 2018 compares it: Chinese by character, all else by word, punctuation by itself."""
    return [
        TokenSpan(match[0].lower() if any(character.isalnum() for character in match[0]) else "", *match.span())
        for match in SEGMENT.finditer(text)
    ]


def _words(text: str) -> set[str]:
    return {unit.word for unit in split_tokens(text)} - {""}


def _weights(units: Sequence[TokenSpan], asked: set[str]) -> dict[str, float]:
    """Return the weight of each word of the question: less the more often it occurs in the context."""
    counts = Counter(unit.word for unit in units)
    return {word: log1p(1 / counts[word]) if counts[word] else 0.0 for word in asked}


def _candidate_spans(units: Sequence[TokenSpan], asked: set[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans of words that are neither punctuation nor in the question."""
    first = None
    for i, word in enumerate([*(unit.word for unit in units), ""]):
        excluded = not word or word in asked
        if not excluded and first is None:
            first = i
        if excluded and first is not None:
            yield first, i
            first = None


def _weight_around(units: Sequence[TokenSpan], weights: dict[str, float], span: tuple[int, int], reach: int) -> float:
    """Return the weight of the question's words within reach of a span, each counted once.

    The order of a set differs from process to process, and the rounding of a plain sum with it: ties would be broken
    at random.
    """
    near = units[max(span[0] - reach, 0) : span[1] + reach]
    return fsum(weights.get(word, 0.0) for word in {unit.word for unit in near})


def _sentences(question: Question) -> list[str]:
    return [part.strip() for part in split_sentences(question.context) if part.strip()]
