"""A model with settings and tokenizer <-> folder."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import regard
from regard.atomic import atomic_folder, latest
from regard.build import build_model
from regard.checkpoint.weights import (
    CONFIG,
    SCORES,
    WEIGHTS,
    Form,
    Undrawn,
    fill,
    gathered,
    put,
    read_json,
    read_settings,
    read_tensors,
    read_weights,
    settings_table,
    unique_tensors,
    write_json,
    write_tensors,
    write_weights,
)
from regard.config import Settings
from regard.data.tokenizer import Tokenizer
from regard.model import Seq2Seq

CARD = "card.md"
ALIGNMENT = "alignment.json"  # the heads that align best, where somebody measured it


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
    write_json(part / CONFIG, {"regard": regard.__version__, "settings": settings_table(checkpoint.settings)})
    write_json(part / SCORES, dict(scores))
    checkpoint.tokenizer.save(part)


def load_model(folder: Path) -> Checkpoint:
    """Reads a model folder, or the model inside a run's folder; raises ValueError naming the file that is wrong."""
    return _load(model_folder(folder))[0]


def _load(folder: Path) -> tuple[Checkpoint, dict[str, Any]]:
    """Reads a model, and tells in which form it lies on disk."""
    made = read_settings(folder / CONFIG)
    tokenizer = Tokenizer.load(folder)
    try:
        with Undrawn():
            model = build_model(made.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    weights = read_weights(folder)
    fill(model, weights.tensors, weights.path)
    form = {"precision": weights.precision, "shards": weights.n_shards, "bytes": weights.n_bytes}
    return Checkpoint(model.eval(), tokenizer, made), form


def model_folder(folder: Path) -> Path:
    """Gives the model inside a run's folder, or the folder itself."""
    inside = latest(folder / "model")
    found = inside if (inside / CONFIG).exists() else latest(folder)
    if not found.is_dir():
        raise ValueError(f"{folder}: there is no such model folder")
    return found


def describe(folder: Path) -> dict[str, Any]:
    """Tells what a model is: its size, its form on disk, its words, its settings and its scores."""
    folder = model_folder(folder)
    checkpoint, form = _load(folder)
    tokenizer = checkpoint.tokenizer
    return {
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        **form,
        "vocabulary": {side: tokenizer.vocab_size(side) for side in ("src", "tgt")},
        "scores": read_json(folder / SCORES) if (folder / SCORES).exists() else {},
        "settings": settings_table(checkpoint.settings),
    }


__all__ = [
    "ALIGNMENT",
    "CARD",
    "CONFIG",
    "SCORES",
    "WEIGHTS",
    "Checkpoint",
    "Form",
    "copy_model",
    "describe",
    "fill",
    "gathered",
    "load_model",
    "model_folder",
    "put",
    "read_json",
    "read_settings",
    "read_tensors",
    "save_model",
    "settings_table",
    "unique_tensors",
    "write_json",
    "write_tensors",
]
