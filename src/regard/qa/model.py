"""Span reader, masked-word head, checkpoint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

import regard
from regard.atomic import atomic_folder, latest
from regard.batch import Source
from regard.build import build_model
from regard.checkpoint import CONFIG, SCORES, read_json, settings_table, weights_path, write_json
from regard.checkpoint.weights import Form, Undrawn, fill, read_weights, unique_tensors, write_weights
from regard.config import ModelSettings, Settings, parse_settings
from regard.data.tokenizer import Tokenizer
from regard.model import Transformer
from regard.model.layers import Embedding
from regard.model.transformer import Encoder
from regard.qa.data import N_MARKS, WindowSettings, check_windows


@dataclass(frozen=True, eq=False)
class ReaderBatch:
    """Questions with their texts, one sequence each: the tokens, and for each of them whose it is.

    A mark of 0 is a token of the question, a sign or padding; what is marked otherwise may be an answer.
    """

    src: Source
    marks: Int[Tensor, "B S"]

    def to(self, device: torch.device) -> "ReaderBatch":
        """Moves to a device."""
        return ReaderBatch(self.src.to(device), self.marks.to(device, non_blocking=True))

    @property
    def allowed(self) -> Bool[Tensor, "B S"]:
        """Tells where an answer may begin or end: in the text, or at the first token, which says that none is here."""
        first = torch.arange(self.marks.shape[1], device=self.marks.device) == 0
        return (self.marks > 0) | first


class SpanReader(nn.Module):
    """Tokens and marks, a Transformer's encoder, and two numbers for each token (arXiv:1810.04805, 4.2).

    Question and text are read as one sequence, so that every layer lets each look at the other. Marks begin as large as
    words: from zeros a reader takes long to find out what they tell.
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

    def read(self, reading: ReaderBatch) -> Float[Tensor, "B S D"]:
        """Gives the encoder's vector for each token."""
        src = reading.src
        x = self.words(src.ids, src.positions) + self.marks(reading.marks) * self.marks.embedding_dim**0.5
        return self.encoder(x, src.positions, src.mask, src.token_mask)

    def forward(self, reading: ReaderBatch) -> tuple[Float[Tensor, "B S"], Float[Tensor, "B S"]]:
        """Gives the logits of an answer's first and of its last token, −∞ where none may stand."""
        logits = self.ends(self.read(reading))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        start, end = exact.masked_fill(~reading.allowed[..., None], -torch.inf).unbind(-1)
        return start, end


class MaskedWords(nn.Module):
    """A reader whose vectors become words, by the reader's own table (arXiv:1810.04805, 3.1)."""

    def __init__(self, reader: SpanReader):
        super().__init__()
        self.reader = reader
        self.to_word = nn.Linear(reader.marks.embedding_dim, reader.words.table.embedding_dim)

    def forward(self, reading: ReaderBatch, hidden: Bool[Tensor, "B S"]) -> Float[Tensor, "N V"]:
        """Gives the logits of the hidden tokens, row by row."""
        vectors = self.to_word(self.reader.read(reading)[hidden])
        return F.linear(vectors, self.reader.words.table.weight)


KIND = "reader of questions"


@dataclass(frozen=True)
class ReaderSettings:
    """What a reader is made of, and how it cuts what it reads; of the model only the encoder is there."""

    model: ModelSettings
    windows: WindowSettings


@dataclass(frozen=True, eq=False)
class QuestionReader:
    """A reader that can be asked: its parameters, its words, and the settings it was made with."""

    model: SpanReader
    tokenizer: Tokenizer
    settings: ReaderSettings


def build_reader(made: ReaderSettings, vocab_size: int) -> SpanReader:
    """Makes a reader around the encoder that a translator with these settings has."""
    check_windows(made.windows)
    model = build_model(replace(made.model, n_decoder_layers=1, tie="all"), (vocab_size, vocab_size))
    if type(model) is not Transformer:
        raise ValueError(f"a reader's family must be transformer, whose encoder it takes, got {made.model.family!r}")
    limit = model.src.position.limit
    if limit is not None and made.windows.size > limit:
        raise ValueError(f"windows.size must be at most {limit}, the model's positions, got {made.windows.size}")
    return SpanReader(model.src, model.encoder, made.model.d_model, N_MARKS)


def save_reader(folder: Path, reader: QuestionReader, scores: Mapping[str, Any]) -> None:
    """Writes one folder that works on another machine; what was there is replaced once this one is complete."""
    with atomic_folder(folder) as part:
        write_weights(part, unique_tensors(reader.model), Form())
        model, windows = reader.settings.model, reader.settings.windows
        made = {"model": settings_table(Settings(model=model))["model"], "windows": asdict(windows)}
        write_json(part / CONFIG, {"regard": regard.__version__, "kind": KIND, "settings": made})
        write_json(part / SCORES, dict(scores))
        reader.tokenizer.save(part)


def load_reader(folder: Path) -> QuestionReader:
    """Reads what `save_reader` wrote; raises ValueError naming the file that is wrong."""
    folder = latest(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; regard qa train makes one")
    config = read_json(folder / CONFIG)
    if config.get("kind") != KIND:
        raise ValueError(f"{folder / CONFIG}: this must be a {KIND}, got another model: regard qa train makes one")
    tokenizer = Tokenizer.load(folder)
    try:
        made = parse_settings(ReaderSettings, config["settings"])
        with Undrawn():
            model = build_reader(made, tokenizer.vocab_size("src"))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    weights = read_weights(folder)
    fill(model, weights, weights_path(folder))
    return QuestionReader(model.eval(), tokenizer, made)
