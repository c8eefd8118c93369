"""A model with its settings and tokenizer, to disk and back; nothing is pickled, nothing half-written."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

import regard
from regard.build import build_model
from regard.config import Settings, settings
from regard.model import Seq2Seq
from regard.text.tokenizer import Tokenizer
from regard.text.whole import standing, whole_folder

WEIGHTS, CONFIG, SCORES = "model.safetensors", "config.json", "scores.json"


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model that can be used: its parameters, its words, and the settings it was made with."""

    model: Seq2Seq
    tokenizer: Tokenizer
    settings: Settings


def save_model(folder: Path, checkpoint: Checkpoint, scores: Mapping[str, Any]) -> None:
    """Writes one folder that works on another machine; a model that was there is replaced once this one is complete."""
    with whole_folder(folder) as part:
        write_tensors(part / WEIGHTS, unique_tensors(checkpoint.model))
        write_json(part / CONFIG, {"regard": regard.__version__, "settings": settings_table(checkpoint.settings)})
        write_json(part / SCORES, dict(scores))
        checkpoint.tokenizer.save(part)


def load_model(folder: Path) -> Checkpoint:
    """Reads a model folder, or the model inside a run's folder; raises ValueError naming the file that is wrong."""
    folder = model_folder(folder)
    made = read_settings(folder / CONFIG)
    tokenizer = Tokenizer.load(folder)
    try:
        model = build_model(made.model, (tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    fill(model, read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return Checkpoint(model.eval(), tokenizer, made)


def model_folder(folder: Path) -> Path:
    """Gives the model inside a run's folder, or the folder itself."""
    inside = standing(folder / "model")
    found = inside if (inside / CONFIG).exists() else standing(folder)
    if not found.is_dir():
        raise ValueError(f"{folder}: there is no such model folder")
    return found


def describe(folder: Path) -> dict[str, Any]:
    """Tells what a model is: its size, its words, its settings and its scores."""
    checkpoint = load_model(folder)
    folder = model_folder(folder)
    tokenizer = checkpoint.tokenizer
    return {
        "parameters": sum(parameter.numel() for parameter in checkpoint.model.parameters()),
        "bytes": (folder / WEIGHTS).stat().st_size,
        "vocabulary": {side: tokenizer.vocab_size(side) for side in ("src", "tgt")},
        "scores": read_json(folder / SCORES) if (folder / SCORES).exists() else {},
        "settings": settings_table(checkpoint.settings),
    }


def unique_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Gives parameters and buffers by name, shared ones once, under the first of their names; shards stay shards."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Puts tensors together whose shards lie in several processes, all of which must ask."""
    return {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}


def put(target: Tensor, value: Tensor) -> None:
    """Copies a whole tensor into another, which may be one process's shard."""
    if isinstance(target, DTensor):
        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    target.copy_(value)


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
            put(tensor, tensors[name])


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a safetensors file; a full disk is an OSError, as it is everywhere else."""
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise OSError(f"{path}: this file cannot be written ({error})") from error


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


def read_settings(path: Path) -> Settings:
    """Reads the settings that a run or a model was made with."""
    saved = read_json(path).get("settings")
    if not isinstance(saved, dict):
        raise ValueError(f"{path}: this must hold a table of settings, got {type(saved).__name__}")
    try:
        return settings(Settings, saved)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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
