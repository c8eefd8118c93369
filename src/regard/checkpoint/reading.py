"""A reader of questions as a folder: weights, settings, tokenizer, scores."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import regard
from regard.build import build_model
from regard.checkpoint.record import CONFIG, SCORES, read_json, settings_table, write_json
from regard.checkpoint.tensors import fill, unique_tensors
from regard.checkpoint.undrawn import Undrawn
from regard.checkpoint.weights import Form, read_weights, write_weights
from regard.config import ModelSettings, Settings, settings
from regard.model import Transformer
from regard.model.span_reader import SpanReader
from regard.text.passages import N_MARKS, WindowSettings, check_windows
from regard.text.tokenizer import Tokenizer
from regard.text.whole import standing, whole_folder

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
    with whole_folder(folder) as part:
        write_weights(part, unique_tensors(reader.model), Form())
        model, windows = reader.settings.model, reader.settings.windows
        made = {"model": settings_table(Settings(model=model))["model"], "windows": asdict(windows)}
        write_json(part / CONFIG, {"regard": regard.__version__, "kind": KIND, "settings": made})
        write_json(part / SCORES, dict(scores))
        reader.tokenizer.save(part)


def load_reader(folder: Path) -> QuestionReader:
    """Reads what `save_reader` wrote; raises ValueError naming the file that is wrong."""
    folder = standing(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; regard qa train makes one")
    config = read_json(folder / CONFIG)
    if config.get("kind") != KIND:
        raise ValueError(f"{folder / CONFIG}: this must be a {KIND}, got another model: regard qa train makes one")
    tokenizer = Tokenizer.load(folder)
    try:
        made = settings(ReaderSettings, config["settings"])
        with Undrawn():
            model = build_reader(made, tokenizer.vocab_size("src"))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    weights = read_weights(folder)
    fill(model, weights.tensors, weights.path)
    return QuestionReader(model.eval(), tokenizer, made)
