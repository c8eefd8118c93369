"""Learning to answer questions, window by window, judged by F1."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.checkpoint.reading import QuestionReader
from regard.config import ModelSettings, TextSettings, merged, override, settings
from regard.decode.answers import answer_questions, make_reading
from regard.model.span_reader import SpanReader
from regard.score.answers import AnswerScores, rules_for, score_answers
from regard.text.passages import Window, WindowSettings, check_windows, cut_passage, make_passage, to_characters
from regard.text.questions import Question
from regard.train.examples import ExampleSettings, Lesson, learn_examples


@dataclass(frozen=True)
class ReadingSettings:
    """Everything that makes a reader what it is; `pretrain` is for the start that first learns words."""

    text: TextSettings = field(default_factory=TextSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    windows: WindowSettings = field(default_factory=WindowSettings)
    train: ExampleSettings = field(default_factory=ExampleSettings)
    pretrain: ExampleSettings = field(default_factory=ExampleSettings)
    judged: int = 500  # validation questions that are answered after each epoch, from the first on


# What differs from the defaults of the tables; a model that is taken over brings its own text and sizes.
SCRATCH: dict[str, Any] = {
    "text": {"vocab_size": 8000},
    "model": {
        **{"n_encoder_layers": 4, "d_model": 256, "n_heads": 4, "d_ff": 1024, "norm_place": "before"},
        "position": {"name": "rotary"},
    },
    "train": {"epochs": 12, "batch": 32, "lr": 5e-4},
    "pretrain": {"epochs": 40, "batch": 32, "lr": 1e-3},
}
TAKEN_OVER: dict[str, Any] = {"train": {"epochs": 12, "batch": 32, "lr": 2e-4}}
QUICK: dict[str, Any] = {
    "text": {"kind": "bpe"},  # whose pieces become whole words in a text of few words
    "model": {"n_encoder_layers": 2, "d_model": 64, "n_heads": 4, "d_ff": 128, "dropout": 0.0},
    "windows": {"size": 128, "stride": 48, "question": 24, "longest": 8},
    "train": {"epochs": 4, "batch": 16, "lr": 3e-3},
    "pretrain": {"epochs": 4, "batch": 8, "lr": 4e-3},
    "judged": 200,
}

BUCKET = 128  # pieces by which the lengths of windows that are read together may differ


def reading_settings(start: str, quick: bool, said: Sequence[str]) -> ReadingSettings:
    """Resolves settings: what goes with the start, the quick ones over them, then what the user says."""
    from_scratch = start in {"scratch", "pretrained"}
    own = QUICK if from_scratch else {name: QUICK[name] for name in ("windows", "train", "judged")}
    table = merged(SCRATCH if from_scratch else TAKEN_OVER, own if quick else {}, *(override(text) for text in said))
    made = settings(ReadingSettings, table)
    check_windows(made.windows)
    return made


def learn_reading(
    reader: QuestionReader, taught: Sequence[Question], judged: Sequence[Question], train: ExampleSettings
) -> Iterator[Lesson]:
    """Has a reader learn from questions, window by window; a lesson's score is F1 on other questions."""
    windows = make_windows(reader, taught)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return span_loss(reader.model, [windows[n] for n in numbers.tolist()])

    yield from learn_examples(reader.model, len(windows), loss, lambda: score_reader(reader, judged).f1, train)


def make_windows(reader: QuestionReader, questions: Sequence[Question]) -> list[Window]:
    """Cuts all that is to be learned from, once."""
    cut = reader.settings.windows
    passages = (make_passage(question, reader.tokenizer, cut) for question in questions)
    return [window for number, passage in enumerate(passages) for window in cut_passage(passage, number, cut)]


def span_loss(model: SpanReader, windows: Sequence[Window]) -> Float[Tensor, ""]:
    """Gives the mean −log p of where answers begin and end."""
    device = next(model.parameters()).device
    losses = []
    # On a GPU every call costs more than some padding.
    for some in [windows] if device.type == "cuda" else by_length(windows):
        labels = torch.tensor([window.label for window in some], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            start, end = model(make_reading(some).to(device))
        losses += [F.cross_entropy(logits, labels[:, n], reduction="sum") for n, logits in enumerate((start, end))]
    return torch.stack(losses).sum() / (2 * len(windows))


def by_length(windows: Sequence[Window]) -> list[list[Window]]:
    """Puts windows of like length together, so that little is padding."""
    buckets: dict[int, list[Window]] = {}
    for window in windows:
        buckets.setdefault(len(window.ids) // BUCKET, []).append(window)
    return list(buckets.values())


def score_reader(reader: QuestionReader, questions: Sequence[Question]) -> AnswerScores:
    """Answers questions, and scores the answers by the rules of their language."""
    given = [answers.found[0].text for answers in answer_questions(reader, questions)]
    return score_given(given, questions)


def score_given(given: Sequence[str], questions: Sequence[Question]) -> AnswerScores:
    """Scores answers to questions by the rules of their language."""
    right = [[answer.text for answer in question.answers] for question in questions]
    return score_answers(given, right, rules_for([question.context for question in questions]))


def ceiling(reader: QuestionReader, questions: Sequence[Question]) -> AnswerScores:
    """Scores the best stretches of pieces there are: those that hold the first right answer, cut to the longest."""
    cut = reader.settings.windows
    given = []
    for question in questions:
        passage = make_passage(question, reader.tokenizer, cut)
        assert passage.label is not None, "a question that is scored has an answer"
        first, last = passage.label
        begin, stop = to_characters(passage.spans, (first, min(last, first + cut.longest - 1)))
        given.append(question.context[begin:stop])
    return score_given(given, questions)
