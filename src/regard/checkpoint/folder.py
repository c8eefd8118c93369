"""A PyTorch model with its settings and tokenizer, to a folder and back; nothing is pickled or half-written."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard import __version__
from regard.atomic import atomic_folder
from regard.build import build_model
from regard.checkpoint import (
    ALIGNMENT,
    CARD,
    CONFIG,
    SCORES,
    model_folder,
    read_settings,
    settings_table,
    weights_path,
    write_json,
)
from regard.checkpoint.weights import Form, Undrawn, fill, read_weights, unique_tensors, write_weights
from regard.config import Settings
from regard.data.tokenizer import Tokenizer
from regard.model import Seq2Seq


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model that can be used: its parameters, its words, and the settings it was made with."""

    model: Seq2Seq
    tokenizer: Tokenizer
    settings: Settings


def save_model(folder: Path, checkpoint: Checkpoint, scores: Mapping[str, Any], form: Form = Form()) -> None:
    """Writes one folder that works on another machine; a model that was there is replaced once this one is complete."""
    with atomic_folder(folder) as part:
        _write(part, checkpoint, scores, form)


def copy_model(folder: Path, out: Path, form: Form) -> None:
    """Writes a model anew in another form; its settings, tokenizer, scores, card and choice of heads stay.

    Only where its texts lay is cut to the last folder and the file: the rest tells of one machine.
    """
    folder = model_folder(folder)
    checkpoint = load_model(folder)
    with atomic_folder(out) as part:
        _write(part, replace(checkpoint, settings=_portable(checkpoint.settings)), {}, form)
        for name in (SCORES, CARD, ALIGNMENT):
            if (folder / name).exists():
                shutil.copyfile(folder / name, part / name)


def _portable(made: Settings) -> Settings:
    def cut(sources: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(",".join("/".join(Path(file).parts[-2:]) for file in source.split(",")) for source in sources)

    data = {name: cut(getattr(made.data, name)) for name in ("train", "valid", "test", "exclude")}
    return replace(made, data=replace(made.data, **data), text=replace(made.text, tokenizer=None))


def _write(part: Path, checkpoint: Checkpoint, scores: Mapping[str, Any], form: Form) -> None:
    write_weights(part, unique_tensors(checkpoint.model), form)
    write_json(part / CONFIG, {"regard": __version__, "settings": settings_table(checkpoint.settings)})
    write_json(part / SCORES, dict(scores))
    checkpoint.tokenizer.save(part)


def load_model(folder: Path) -> Checkpoint:
    """Read a model folder, or the model inside a run's folder; raise ValueError naming the file that is wrong."""
    folder = model_folder(folder)
    made = read_settings(folder / CONFIG)
    tokenizer = Tokenizer.load(folder)
    try:
        with Undrawn():
            model = build_model(made.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    fill(model, read_weights(folder), weights_path(folder))
    return Checkpoint(model.eval(), tokenizer, made)
