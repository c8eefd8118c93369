"""A model with its settings and tokenizer, to disk and back; nothing is pickled, nothing half-written."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import regard
from regard.build import build_model
from regard.config import Settings, settings
from regard.model import Seq2Seq
from regard.text.tokenizer import Tokenizer

WEIGHTS, CONFIG, SCORES = "model.safetensors", "config.json", "scores.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model that can be used: its parameters, its words, and the settings it was made with."""

    model: Seq2Seq
    tokenizer: Tokenizer
    settings: Settings


def save_model(folder: Path, checkpoint: Checkpoint, scores: Mapping[str, Any], write: bool = True) -> None:
    """Writes one folder that works on another machine; a model that was there is replaced once this one is complete.

    With shards, all processes gather them and one writes.
    """
    tensors = unique_tensors(checkpoint.model)
    if not write:
        return
    with whole_folder(folder) as part:
        save_file(tensors, part / WEIGHTS)
        write_json(part / CONFIG, {"regard": regard.__version__, "settings": settings_table(checkpoint.settings)})
        write_json(part / SCORES, dict(scores))
        checkpoint.tokenizer.save(part)


def load_model(folder: Path) -> Checkpoint:
    """Reads a model folder, or the model inside a run's folder; raises ValueError naming the file that is wrong."""
    folder = folder / "model" if (folder / "model" / CONFIG).exists() else folder
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such model folder")
    made = settings(Settings, read_json(folder / CONFIG).get("settings", {}))
    tokenizer = Tokenizer.load(folder)
    model = build_model(made.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")))
    fill(model, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return Checkpoint(model.eval(), tokenizer, made)


def describe(folder: Path) -> dict[str, Any]:
    """Tells what a model is: its size, its words, its settings and its scores."""
    checkpoint = load_model(folder)
    folder = folder / "model" if (folder / "model" / CONFIG).exists() else folder
    tokenizer = checkpoint.tokenizer
    return {
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "bytes": (folder / WEIGHTS).stat().st_size,
        "vocabulary": {side: tokenizer.vocab_size(side) for side in ("src", "tgt")},
        "scores": read_json(folder / SCORES) if (folder / SCORES).exists() else {},
        "settings": settings_table(checkpoint.settings),
    }


def unique_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Gives parameters and buffers by name, shared ones once, under the first of their names."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = _full(tensor.detach()).contiguous()
    return tensors


def _full(tensor: Tensor) -> Tensor:
    """Gathers a tensor whose shards lie in several processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Puts saved tensors into a module that must have just these, of just these shapes."""
    wanted = unique_tensors(module)
    missing, foreign = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or foreign:
        raise ValueError(f"{path}: these weights are of another model: missing {missing[:3]}, unknown {foreign[:3]}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            if tensor.shape != tensors[name].shape:
                shapes = f"{tuple(tensors[name].shape)} instead of {tuple(tensor.shape)}"
                raise ValueError(f"{path}: these weights are of another model: {name} is {shapes}")
            tensor.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file; a missing, truncated or foreign one is named."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: this is no complete safetensors file ({error}): copy the folder again") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object; a missing, truncated or foreign file is named."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: this is no complete JSON file ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: this must be a JSON object, got {type(value).__name__}")
    return value


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes a JSON object for people and programs."""
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def settings_table(made: Settings) -> dict[str, Any]:
    """Gives settings as tables in the form in which they are read."""

    def flat(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"name", "options"}:
            return {"name": value["name"], **value["options"]}
        return (
            {key: "none" if item is None else flat(item) for key, item in value.items()}
            if isinstance(value, dict)
            else value
        )

    return flat(asdict(made))


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Gives an empty folder to write into, which takes the name `folder` at the end, or vanishes if anything fails."""
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        yield part
        for path in part.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
