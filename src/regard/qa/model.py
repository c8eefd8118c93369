"""Span reader, masked-word head, checkpoint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard import __version__
from regard.atomic import atomic_folder, latest, write_checksums
from regard.batch import Source
from regard.build import build_model
from regard.checkpoint import CONFIG, SCORES, is_model_file, read_json, settings_table, write_json
from regard.checkpoint.weights import Form, restore, unique_tensors, write_weights
from regard.config import ModelSettings, Settings, parse_settings
from regard.data.tokenizer import Tokenizer
from regard.model import Transformer
from regard.model.layers import Embedding
from regard.model.transformer import Encoder
from regard.qa.data import N_MARKS, WindowSettings, check_windows
from regard.shapes import Bool, Float, Int


@dataclass(frozen=True, eq=False)
class ReaderBatch:
    """Questions with their contexts, one sequence each: the tokens, and a mark for each of them.

    Mark 0 is a token of the question, a special token or padding; only other tokens can be in an answer.
    """

    src: Source
    marks: Int[Tensor, "B S"]

    def to(self, device: torch.device) -> "ReaderBatch":
        return ReaderBatch(self.src.to(device), self.marks.to(device, non_blocking=True))

    @property
    def allowed(self) -> Bool[Tensor, "B S"]:
        """Where an answer may begin or end: in the context, or at the first token, which means no answer."""
        first = torch.arange(self.marks.shape[1], device=self.marks.device) == 0
        return (self.marks > 0) | first


class SpanReader(nn.Module):
    """Tokens and marks, a Transformer's encoder, and two numbers for each token (arXiv:1810.04805, 4.2).

    Question and context are one sequence, so that every layer attends across both. Embeddings of marks are initialised
    as large as those of tokens: from zeros a reader takes long to use them.
    """

    def __init__(self, words: Embedding, encoder: Encoder, width: int, n_marks: int):
        super().__init__()
        self.words = words
        self.encoder = encoder
        self.marks = nn.Embedding(n_marks, width)
        self.ends = nn.Linear(width, 2)
        nn.init.normal_(self.marks.weight, std=width**-0.5)
        nn.init.normal_(self.ends.weight, std=0.02)
        nn.init.zeros_(self.ends.bias)

    def read(self, batch: ReaderBatch) -> Float[Tensor, "B S D"]:
        """Return the encoder's output."""
        src = batch.src
        x = self.words(src.ids, src.positions) + self.marks(batch.marks) * self.marks.embedding_dim**0.5
        return self.encoder(x, src.positions, src.mask, src.token_mask)

    def forward(self, batch: ReaderBatch) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """Return the logits of an answer's first and last token, −∞ where none is allowed."""
        logits = self.ends(self.read(batch))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        start, end = exact.masked_fill(~batch.allowed[..., None], -torch.inf).unbind(-1)
        return start, end


class MaskedWords(nn.Module):
    """A reader whose vectors become words, by the reader's own table (arXiv:1810.04805, 3.1)."""

    def __init__(self, reader: SpanReader):
        super().__init__()
        self.reader = reader
        self.to_word = nn.Linear(reader.marks.embedding_dim, reader.words.table.embedding_dim)

    def forward(self, batch: ReaderBatch, mask: Bool[Tensor, "B S"]) -> Float[Tensor, "N V"]:
        """Return the logits of the masked tokens, row by row."""
        vectors = self.to_word(self.reader.read(batch)[mask])
        return F.linear(vectors, self.reader.words.table.weight)


KIND = "reader of questions"


@dataclass(frozen=True)
class ReaderSettings:
    """The model, of which only the encoder is used, and the windows it reads."""

    model: ModelSettings
    windows: WindowSettings


@dataclass(frozen=True, eq=False)
class QuestionReader:
    """A trained reader: its model, its tokenizer and its settings."""

    model: SpanReader
    tokenizer: Tokenizer
    settings: ReaderSettings


def build_reader(settings: ReaderSettings, vocab_size: int) -> SpanReader:
    """Build a reader with the encoder of a translator with these settings."""
    check_windows(settings.windows)
    model = build_model(replace(settings.model, n_decoder_layers=1, tie="all"), (vocab_size, vocab_size))
    if type(model) is not Transformer:
        raise ValueError(f"a reader's family must be transformer, got {settings.model.family!r}")
    limit = model.src.position.limit
    if limit is not None and settings.windows.size > limit:
        raise ValueError(f"windows.size must be at most {limit}, the model's positions, got {settings.windows.size}")
    return SpanReader(model.src, model.encoder, settings.model.d_model, N_MARKS)


def save_reader(folder: Path, reader: QuestionReader, scores: Mapping[str, Any]) -> None:
    """Save a reader in one self-contained folder, atomically."""
    with atomic_folder(folder, is_model_file) as part:
        write_weights(part, unique_tensors(reader.model), Form())
        reader.tokenizer.save(part)
        write_checksums(part)
        model, windows = reader.settings.model, reader.settings.windows
        table = {"model": settings_table(Settings(model=model))["model"], "windows": asdict(windows)}
        write_json(part / CONFIG, {"regard": __version__, "kind": KIND, "settings": table})
        write_json(part / SCORES, dict(scores))


def load_reader(folder: Path) -> QuestionReader:
    """Load a reader; raise ValueError naming the file that is wrong."""
    folder = latest(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; regard qa train creates one")
    config = read_json(folder / CONFIG)
    if config.get("kind") != KIND:
        raise ValueError(f"{folder / CONFIG}: this must be a {KIND}, got another model: regard qa train creates one")
    tokenizer = Tokenizer.load(folder)
    saved = config.get("settings")
    if not isinstance(saved, dict):
        raise ValueError(f"{folder / CONFIG}: this must hold a table of settings, got {type(saved).__name__}")
    try:
        settings = parse_settings(ReaderSettings, saved)
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    model = restore(folder, settings.model, lambda: build_reader(settings, tokenizer.vocab_size("src")))
    return QuestionReader(model, tokenizer, settings)
