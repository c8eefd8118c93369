"""Fine-tuning and masked pretraining."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import make_source
from regard.checkpoint.folder import load_model
from regard.checkpoint.weights import fill, unique_tensors
from regard.config import ModelSettings, TextSettings, merge, parse_override, parse_settings
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import train_tokenizer
from regard.model import Transformer
from regard.pipeline.translator import SENTENCE_END, cut
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
from regard.train.examples import EpochResult, ExampleSettings, train_on_examples
from regard.zoo import find_model


@dataclass(frozen=True)
class QASettings:
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
FROM_MODEL: dict[str, Any] = {"train": {"epochs": 12, "batch": 32, "lr": 2e-4}}
QUICK: dict[str, Any] = {
    "text": {"kind": "bpe"},  # whose pieces become whole words in a text of few words
    "model": {"n_encoder_layers": 2, "d_model": 64, "n_heads": 4, "d_ff": 128, "dropout": 0.0},
    "windows": {"size": 128, "stride": 48, "question": 24, "longest": 8},
    "train": {"epochs": 4, "batch": 16, "lr": 3e-3},
    "pretrain": {"epochs": 4, "batch": 8, "lr": 4e-3},
    "judged": 200,
}

BUCKET = 128  # pieces by which the lengths of windows that are read together may differ


def resolve_settings(start: str, quick: bool, overrides: Sequence[str]) -> QASettings:
    """Resolves settings: what goes with the start, the quick ones over them, then what the user says."""
    from_scratch = start in {"scratch", "pretrained"}
    own = QUICK if from_scratch else {name: QUICK[name] for name in ("windows", "train", "judged")}
    table = merge(
        SCRATCH if from_scratch else FROM_MODEL, own if quick else {}, *(parse_override(text) for text in overrides)
    )
    made = parse_settings(QASettings, table)
    check_windows(made.windows)
    return made


def train_reader(
    reader: QuestionReader,
    train_questions: Sequence[Question],
    valid_questions: Sequence[Question],
    settings: ExampleSettings,
) -> Iterator[EpochResult]:
    """Has a reader learn from questions, window by window; a lesson's score is F1 on other questions."""
    windows = make_windows(reader, train_questions)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return span_loss(reader.model, [windows[n] for n in numbers.tolist()])

    yield from train_on_examples(
        reader.model, len(windows), loss, lambda: score_reader(reader, valid_questions).f1, settings
    )


def make_windows(reader: QuestionReader, questions: Sequence[Question]) -> list[ReaderWindow]:
    """Cuts all that is to be learned from, once."""
    cut = reader.settings.windows
    passages = (make_passage(question, reader.tokenizer, cut) for question in questions)
    return [window for number, passage in enumerate(passages) for window in cut_passage(passage, number, cut)]


def span_loss(model: SpanReader, windows: Sequence[ReaderWindow]) -> Float[Tensor, ""]:
    """Gives the mean −log p of where answers begin and end."""
    device = next(model.parameters()).device
    losses = []
    # On a GPU every call costs more than some padding.
    for some in [windows] if device.type == "cuda" else by_length(windows):
        labels = torch.tensor([window.label for window in some], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            start, end = model(make_reader_batch(some).to(device))
        losses += [F.cross_entropy(logits, labels[:, n], reduction="sum") for n, logits in enumerate((start, end))]
    return torch.stack(losses).sum() / (2 * len(windows))


def by_length(windows: Sequence[ReaderWindow]) -> list[list[ReaderWindow]]:
    """Puts windows of like length together, so that little is padding."""
    buckets: dict[int, list[ReaderWindow]] = {}
    for window in windows:
        buckets.setdefault(len(window.ids) // BUCKET, []).append(window)
    return list(buckets.values())


def score_reader(reader: QuestionReader, questions: Sequence[Question]) -> AnswerScores:
    """Answers questions, and scores the answers by the rules of their language."""
    given = [answers.spans[0].text for answers in answer_questions(reader, questions)]
    return score_predictions(given, questions)


def score_predictions(predicted: Sequence[str], questions: Sequence[Question]) -> AnswerScores:
    """Scores answers to questions by the rules of their language."""
    right = [[answer.text for answer in question.answers] for question in questions]
    return score_answers(predicted, right, rules_for([question.context for question in questions]))


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
    return score_predictions(given, questions)


MASKED = 0.15  # share of the pieces that are to be told
BLANK, REPLACE = 0.8, 0.1  # of these: shown as unknown, or as another piece; the rest is shown as it is
FIRST_PIECE = 4  # below stand padding, unknown, beginning and end
VALID_SHARE = 0.05  # share of the chunks on which the model is judged


def pretrain_reader(reader: QuestionReader, texts: Sequence[str], settings: ExampleSettings) -> Iterator[EpochResult]:
    """Has a reader's encoder learn from texts; a lesson's score is the mean log-probability of hidden pieces.

    With byte fallback no piece is ever unknown, so that piece is free to stand for a hidden one.
    """
    chunks = cut_chunks(reader.tokenizer.encode_batch(texts, "src"), reader.settings.windows.size - 2)
    n_judged = max(1, round(len(chunks) * VALID_SHARE))
    if len(chunks) <= n_judged:
        raise ValueError(f"to learn words there must be more than {n_judged} chunks of text, got {len(chunks)}")
    judged, taught = chunks[:n_judged], chunks[n_judged:]
    device = next(reader.model.parameters()).device
    model = MaskedWords(reader.model).to(device)

    def loss(numbers: Int[Tensor, " B"]) -> Float[Tensor, ""]:
        return masked_loss(model, [taught[n] for n in numbers.tolist()], None)

    def judge() -> float:
        chance, losses = torch.Generator().manual_seed(settings.seed), []
        for first in range(0, len(judged), settings.batch):
            losses.append(masked_loss(model, judged[first : first + settings.batch], chance))
        return -float(torch.stack(losses).mean())

    yield from train_on_examples(model, len(taught), loss, judge, settings)


def cut_chunks(texts: Iterable[Sequence[int]], size: int) -> list[list[int]]:
    """Lays texts end to end, EOS between them, until a chunk is full; what a text has too much begins the next."""
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


def masked_loss(model: MaskedWords, chunks: Sequence[list[int]], chance: torch.Generator | None) -> Float[Tensor, ""]:
    """Gives the mean −log p of the pieces that are hidden in some chunks."""
    src = make_source([[Tokenizer.bos_id, *chunk] for chunk in chunks])
    shown, hidden = mask_tokens(src.ids, model.reader.words.table.num_embeddings, chance)
    marks = (src.ids >= FIRST_PIECE) * CONTEXT
    device = next(model.parameters()).device
    reading = ReaderBatch(replace(src, ids=shown), marks).to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model(reading, hidden.to(device))
    return F.cross_entropy(logits.float(), src.ids[hidden].to(device))


def mask_tokens(
    ids: Int[Tensor, "B S"], vocab_size: int, chance: torch.Generator | None
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Gives ids of which some are hidden, and tells which; at least one is (arXiv:1810.04805, 3.1)."""
    drawn = torch.where(ids >= FIRST_PIECE, torch.rand(ids.shape, generator=chance), torch.ones(()))
    hidden = drawn <= torch.maximum(torch.tensor(MASKED), drawn.min())
    how = torch.rand(ids.shape, generator=chance)
    others = torch.randint(FIRST_PIECE, vocab_size, ids.shape, generator=chance)
    shown = torch.where(hidden & (how < BLANK), Tokenizer.unk_id, ids)
    return torch.where(hidden & (how >= BLANK) & (how < BLANK + REPLACE), others, shown), hidden


NEW = ("scratch", "pretrained")  # starts that learn their own pieces


def start_reader(
    start: str, made: QASettings, questions: Sequence[Question], texts: Sequence[str], say: Callable[[str], None]
) -> QuestionReader:
    """Makes a reader that is about to learn: a new one, or one with the encoder and the words of a model."""
    torch.manual_seed(made.train.seed)
    return new_reader(made, questions, texts, say) if start in NEW else reader_from_translator(start, made)


def new_reader(
    made: QASettings, questions: Sequence[Question], texts: Sequence[str], say: Callable[[str], None]
) -> QuestionReader:
    """Learns pieces from the questions, their contexts and further texts, and draws a model of the given sizes."""
    contexts = dict.fromkeys(question.context for question in questions)
    sentences = [sentence.strip() for context in contexts for sentence in cut(context, SENTENCE_END)]
    spoken = [text for text in (*sentences, *(question.text for question in questions), *texts) if text]
    pairs = [(text, text) for text in spoken]
    tokenizer = train_tokenizer(pairs, replace(made.text, joint=True), say, made.train.seed)
    parts = ReaderSettings(made.model, made.windows)
    return QuestionReader(build_reader(parts, tokenizer.vocab_size("src")), tokenizer, parts)


def reader_from_translator(name: str, made: QASettings) -> QuestionReader:
    """Takes over a translator's source table, encoder and tokenizer; of its settings only dropout may differ."""
    folder = find_model(name)
    checkpoint = load_model(folder)
    own = checkpoint.settings.model
    if type(checkpoint.model) is not Transformer:
        raise ValueError(f"--start {name}: a reader takes the encoder of a Transformer, got the family {own.family!r}")
    said = replace(made.model, dropout=ModelSettings().dropout)
    if said != ModelSettings():
        raise ValueError(f"--start {name}: a reader keeps the sizes of its model, got {said}: set model.dropout alone")
    parts = ReaderSettings(replace(own, dropout=made.model.dropout), made.windows)
    reader = build_reader(parts, checkpoint.tokenizer.vocab_size("src"))
    fill(reader.words, unique_tensors(checkpoint.model.src), folder)
    fill(reader.encoder, unique_tensors(checkpoint.model.encoder), folder)
    with torch.no_grad():
        reader.marks.weight[[QUESTION, CONTEXT]] = 0.0  # so that the encoder first gives what it gave there
    return QuestionReader(reader, checkpoint.tokenizer, parts)
