"""Training a reader on questions, and masked pretraining."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.batch import make_source
from regard.checkpoint.weights import fill, load_model, unique_tensors
from regard.config import ModelSettings, TextSettings, merge, parse_settings
from regard.data.sentences import split_sentences
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer
from regard.model import Transformer
from regard.qa.data import (
    CONTEXT,
    QUESTION,
    Question,
    ReaderWindow,
    WindowSettings,
    check_windows,
    cut_passage,
    make_passage,
    to_characters,
)
from regard.qa.model import MaskedWords, QuestionReader, ReaderBatch, ReaderSettings, SpanReader, build_reader
from regard.qa.predict import AnswerScores, answer_questions, make_reader_batch, rules_for, score_answers
from regard.shapes import Bool, Float, Int
from regard.toml import parse_override
from regard.train.examples import EpochResult, ExampleSettings, train_on_examples
from regard.zoo import find_model


@dataclass(frozen=True)
class QASettings:
    """Everything that determines a reader; `pretrain` is for the start that pretrains on masked tokens."""

    text: TextSettings = field(default_factory=TextSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    windows: WindowSettings = field(default_factory=WindowSettings)
    train: ExampleSettings = field(default_factory=ExampleSettings)
    pretrain: ExampleSettings = field(default_factory=ExampleSettings)
    judged: int = 500  # validation questions answered after each epoch, the first ones


# Differences from the defaults; a model that is fine-tuned brings its own tokenizer and sizes.
SCRATCH: dict[str, Any] = {
    "text": {"vocab_size": 8000},
    "model": {
        **{"n_encoder_layers": 4, "d_model": 256, "n_heads": 4, "d_ff": 1024, "norm_place": "before"},
        "position": {"name": "rotary"},
    },
    "train": {"epochs": 12, "batch": 32, "lr": 5e-4},
    "pretrain": {"epochs": 40, "batch": 32, "lr": 1e-3},
}
FROM_MODEL: dict[str, Any] = {"train": {"epochs": 12, "batch": 32, "lr": 2e-4}}
QUICK: dict[str, Any] = {
    "text": {"kind": "bpe"},  # its pieces become whole words in a text of few words
    "model": {"n_encoder_layers": 2, "d_model": 64, "n_heads": 4, "d_ff": 128, "dropout": 0.0},
    "windows": {"size": 128, "stride": 48, "question": 24, "longest": 8},
    "train": {"epochs": 4, "batch": 16, "lr": 3e-3},
    "pretrain": {"epochs": 4, "batch": 8, "lr": 4e-3},
    "judged": 200,
}

BUCKET = 128  # tokens by which the lengths of windows in a batch may differ


def resolve_qa_settings(start: str, quick: bool, overrides: Sequence[str]) -> QASettings:
    """Resolve settings: the defaults of the start, then the quick ones, then the overrides."""
    from_scratch = start in {"scratch", "pretrained"}
    own = QUICK if from_scratch else {name: QUICK[name] for name in ("windows", "train", "judged")}
    table = merge(
        SCRATCH if from_scratch else FROM_MODEL, own if quick else {}, *(parse_override(text) for text in overrides)
    )
    settings = parse_settings(QASettings, table)
    check_windows(settings.windows)
    return settings


def train_reader(
    reader: QuestionReader,
    train_questions: Sequence[Question],
    valid_questions: Sequence[Question],
    settings: ExampleSettings,
) -> Iterator[EpochResult]:
    """Train a reader on questions, window by window; the score of an epoch is F1 on other questions."""
    windows = make_windows(reader, train_questions)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return span_loss(reader.model, [windows[n] for n in numbers.tolist()])

    yield from train_on_examples(
        reader.model, len(windows), loss, lambda: score_reader(reader, valid_questions).f1, settings
    )


def make_windows(reader: QuestionReader, questions: Sequence[Question]) -> list[ReaderWindow]:
    """Return the windows of all questions."""
    cut = reader.settings.windows
    passages = (make_passage(question, reader.tokenizer, cut) for question in questions)
    return [window for number, passage in enumerate(passages) for window in cut_passage(passage, number, cut)]


def span_loss(model: SpanReader, windows: Sequence[ReaderWindow]) -> Float[Tensor, ""]:
    """Return the mean −log p of the first and the last tokens of answers."""
    device = next(model.parameters()).device
    losses = []
    # On a GPU a call costs more than some padding.
    for some in [windows] if device.type == "cuda" else by_length(windows):
        labels = torch.tensor([window.label for window in some], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            start, end = model(make_reader_batch(some).to(device))
        losses += [F.cross_entropy(logits, labels[:, n], reduction="sum") for n, logits in enumerate((start, end))]
    return torch.stack(losses).sum() / (2 * len(windows))


def by_length(windows: Sequence[ReaderWindow]) -> list[list[ReaderWindow]]:
    """Group windows of like length, to save padding."""
    buckets: dict[int, list[ReaderWindow]] = {}
    for window in windows:
        buckets.setdefault(len(window.ids) // BUCKET, []).append(window)
    return list(buckets.values())


def score_reader(reader: QuestionReader, questions: Sequence[Question]) -> AnswerScores:
    """Score a reader's answers by the rules of their language."""
    predicted = [answers.spans[0].text for answers in answer_questions(reader, questions)]
    return score_predictions(predicted, questions)


def score_predictions(predicted: Sequence[str], questions: Sequence[Question]) -> AnswerScores:
    """Score answers by the rules of their language."""
    right = [[answer.text for answer in question.answers] for question in questions]
    return score_answers(predicted, right, rules_for([question.context for question in questions]))


def ceiling(reader: QuestionReader, questions: Sequence[Question]) -> AnswerScores:
    """Score the best possible spans of tokens: those of the first reference, truncated to the longest allowed."""
    cut = reader.settings.windows
    predicted = []
    for question in questions:
        passage = make_passage(question, reader.tokenizer, cut)
        assert passage.label is not None, "a question that is scored has an answer"
        first, last = passage.label
        begin, stop = to_characters(passage.spans, (first, min(last, first + cut.longest - 1)))
        predicted.append(question.context[begin:stop])
    return score_predictions(predicted, questions)


MASKED = 0.15  # share of the tokens that are predicted
BLANK, REPLACE = 0.8, 0.1  # of these: replaced by unknown, or by another token; the rest is left as it is
FIRST_PIECE = 4  # after padding, unknown, BOS and EOS
VALID_SHARE = 0.05  # share of the chunks for validation


def pretrain_reader(reader: QuestionReader, texts: Sequence[str], settings: ExampleSettings) -> Iterator[EpochResult]:
    """Pretrain a reader's encoder on texts; the score of an epoch is the mean log-probability of masked tokens.

    With byte fallback no token is ever unknown, so that token serves as the mask.
    """
    chunks = cut_chunks(reader.tokenizer.encode_batch(texts, "src"), reader.settings.windows.size - 2)
    n_valid = max(1, round(len(chunks) * VALID_SHARE))
    if len(chunks) <= n_valid:
        raise ValueError(f"pretraining needs more than {n_valid} chunks of text, got {len(chunks)}")
    valid, train = chunks[:n_valid], chunks[n_valid:]
    device = next(reader.model.parameters()).device
    model = MaskedWords(reader.model).to(device)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return masked_loss(model, [train[n] for n in numbers.tolist()], None)

    def evaluate() -> float:
        rng, losses = torch.Generator().manual_seed(settings.seed), []
        for first in range(0, len(valid), settings.batch):
            losses.append(masked_loss(model, valid[first : first + settings.batch], rng))
        return -float(torch.stack(losses).mean())

    yield from train_on_examples(model, len(train), loss, evaluate, settings)


def cut_chunks(texts: Iterable[Sequence[int]], size: int) -> list[list[int]]:
    """Concatenate texts, EOS after each, and cut them into chunks."""
    chunks: list[list[int]] = [[]]
    for ids in texts:
        rest = [*ids, Tokenizer.eos_id] if ids else []
        while rest:
            room = size - len(chunks[-1])
            chunks[-1] += rest[:room]
            rest = rest[room:]
            if len(chunks[-1]) == size:
                chunks.append([])
    return [chunk for chunk in chunks if len(chunk) > 1]


def masked_loss(model: MaskedWords, chunks: Sequence[list[int]], rng: torch.Generator | None) -> Float[Tensor, ""]:
    """Return the mean −log p of the masked tokens of some chunks."""
    src = make_source([[Tokenizer.bos_id, *chunk] for chunk in chunks])
    shown, masked = mask_tokens(src.ids, model.reader.words.table.num_embeddings, rng)
    marks = (src.ids >= FIRST_PIECE) * CONTEXT
    device = next(model.parameters()).device
    batch = ReaderBatch(replace(src, ids=shown), marks).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model(batch, masked.to(device))
    return F.cross_entropy(logits.float(), src.ids[masked].to(device))


def mask_tokens(
    ids: Int[Tensor, "B S"], vocab_size: int, rng: torch.Generator | None
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Mask some ids, at least one, and return which (arXiv:1810.04805, 3.1)."""
    draws = torch.where(ids >= FIRST_PIECE, torch.rand(ids.shape, generator=rng), torch.ones(()))
    masked = draws <= torch.maximum(torch.tensor(MASKED), draws.min())
    how = torch.rand(ids.shape, generator=rng)
    others = torch.randint(FIRST_PIECE, vocab_size, ids.shape, generator=rng)
    shown = torch.where(masked & (how < BLANK), Tokenizer.unk_id, ids)
    return torch.where(masked & (how >= BLANK) & (how < BLANK + REPLACE), others, shown), masked


NEW = ("scratch", "pretrained")  # starts that train their own tokenizer


def start_reader(
    start: str, settings: QASettings, questions: Sequence[Question], texts: Sequence[str], log: Callable[[str], None]
) -> QuestionReader:
    """Return an untrained reader: a new one, or one with the encoder and the tokenizer of a translator."""
    torch.manual_seed(settings.train.seed)
    return new_reader(settings, questions, texts, log) if start in NEW else reader_from_translator(start, settings)


def new_reader(
    settings: QASettings, questions: Sequence[Question], texts: Sequence[str], log: Callable[[str], None]
) -> QuestionReader:
    """Train a tokenizer on the questions, their contexts and further texts, and build a model."""
    contexts = dict.fromkeys(question.context for question in questions)
    sentences = [sentence.strip() for context in contexts for sentence in split_sentences(context)]
    texts = [text for text in (*sentences, *(question.text for question in questions), *texts) if text]
    pairs = [(text, text) for text in texts]
    tokenizer = train_tokenizer(pairs, replace(settings.text, joint=True), log, settings.train.seed)
    parts = ReaderSettings(settings.model, settings.windows)
    return QuestionReader(build_reader(parts, tokenizer.vocab_size("src")), tokenizer, parts)


def reader_from_translator(name: str, settings: QASettings) -> QuestionReader:
    """Return a reader with a translator's source embeddings, encoder and tokenizer; only dropout may differ."""
    folder = find_model(name)
    checkpoint = load_model(folder)
    own = checkpoint.settings.model
    if type(checkpoint.model) is not Transformer:
        raise ValueError(f"--start {name}: a reader needs the encoder of a Transformer, got the family {own.family!r}")
    sizes = replace(settings.model, dropout=ModelSettings().dropout)
    if sizes != ModelSettings():
        raise ValueError(f"--start {name}: a reader keeps the sizes of its model, got {sizes}: set model.dropout alone")
    parts = ReaderSettings(replace(own, dropout=settings.model.dropout), settings.windows)
    reader = build_reader(parts, checkpoint.tokenizer.vocab_size("src"))
    fill(reader.words, unique_tensors(checkpoint.model.src), folder)
    fill(reader.encoder, unique_tensors(checkpoint.model.encoder), folder)
    with torch.no_grad():
        reader.marks.weight[[QUESTION, CONTEXT]] = (
            0.0  # so that the encoder's output is at first that of the translator
        )
    return QuestionReader(reader, checkpoint.tokenizer, parts)
