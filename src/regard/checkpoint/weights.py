"""Safetensors, shards, JSON, lazy init."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.config import Settings, parse_settings
from regard.model.layers import is_sharded
from regard.model.quantize import dequantize, precision_of, quantize


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
    return {name: t.full_tensor() if is_sharded(t) else t for name, t in tensors.items()}  # pyright: ignore


def put(target: Tensor, value: Tensor) -> None:
    """Copies a whole tensor into another, which may be one process's shard."""
    if is_sharded(target):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)  # pyright: ignore
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """Writes a safetensors file; a full disk is an OSError, as it is everywhere else."""
    path.touch()
    mode = path.stat().st_mode  # the library lets nobody but its user read what it writes
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, notes)
    except SafetensorError as error:
        raise OSError(f"{path}: this file cannot be written ({error})") from error
    path.chmod(mode)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file; a missing, truncated or foreign one is named."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Reads a safetensors file with the notes that its writer left in it."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path}: this is no complete safetensors file ({error}): copy the folder again") from error


CONFIG, SCORES = "config.json", "scores.json"


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


def read_settings(path: Path) -> Settings:
    """Reads the settings that a run or a model was made with."""
    saved = read_json(path).get("settings")
    if not isinstance(saved, dict):
        raise ValueError(f"{path}: this must hold a table of settings, got {type(saved).__name__}")
    try:
        return parse_settings(Settings, saved)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


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


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MIB = 1 << 20
HEADER = 256  # bytes of a shard's header for each tensor, and then some


@dataclass(frozen=True)
class Form:
    """How weights lie on disk: in which precision, and in files of at most how many MiB."""

    precision: str = "float32"
    shard_mib: float | None = None  # one file


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors as they are computed with, and the form in which they lie on disk."""

    path: Path  # of the one file, or of the index
    tensors: dict[str, Tensor]
    precision: str
    n_shards: int
    n_bytes: int  # of all files


def write_weights(folder: Path, tensors: Mapping[str, Tensor], form: Form) -> None:
    """Writes `model.safetensors`, or, where it would be larger than a shard may be, shards and their index.

    All shards bear the same mark, so that one of another model is found out even if its tensors have the same shapes.
    """
    small = quantize(tensors, form.precision)
    shards = _shared_out(small, form.shard_mib)
    if len(shards) == 1:
        return write_tensors(folder / WEIGHTS, small)
    mark = _mark(small)
    places: dict[str, str] = {}
    for n, shard in enumerate(shards, start=1):
        name = f"model-{n:05d}-of-{len(shards):05d}.safetensors"
        write_tensors(folder / name, shard, {"format": "pt", "mark": mark})
        places |= dict.fromkeys(shard, name)
    total = sum(_n_bytes(tensor) for tensor in small.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total, "mark": mark}, "weight_map": places})


def read_weights(folder: Path) -> Weights:
    """Reads the weights of a folder, whatever their form; a missing, truncated or foreign file is named."""
    path = folder / WEIGHTS
    if path.exists() or not (folder / INDEX).exists():
        tensors, _ = read_noted(path)
        paths = [path]
    else:
        path = folder / INDEX
        tensors, paths = _read_shards(folder)
    n_bytes = sum(path.stat().st_size for path in paths)
    if not tensors:
        raise ValueError(f"{paths[0]}: a model must have weights, got a file without any: copy the folder again")
    return Weights(path, dequantize(tensors), precision_of(tensors), len(paths), n_bytes)


def _read_shards(folder: Path) -> tuple[dict[str, Tensor], list[Path]]:
    index = read_json(folder / INDEX)
    places, notes = index.get("weight_map"), index.get("metadata")
    named = isinstance(places, dict) and all(
        isinstance(name, str) and Path(name).name == name for name in places.values()
    )
    if not isinstance(places, dict) or not named or not places:
        raise ValueError(
            f"{folder / INDEX}: weight_map must name a file of this folder for each tensor, got {places!r:.60}"
        )
    mark = notes.get("mark") if isinstance(notes, dict) else None
    tensors: dict[str, Tensor] = {}
    paths = [folder / name for name in sorted(set(places.values()))]
    for path in paths:
        shard, found = read_noted(path)
        expected = {name for name, place in places.items() if place == path.name}
        if found.get("mark") != mark or shard.keys() != expected:
            other = sorted(shard.keys() ^ expected)[:3] or "the same names, and another mark"
            raise ValueError(f"{path}: this shard is of another model than {INDEX} ({other}): copy the folder again")
        tensors |= shard
    return tensors, paths


def _shared_out(tensors: Mapping[str, Tensor], shard_mib: float | None) -> list[dict[str, Tensor]]:
    """Deals tensors out to shards in their order, a new one where the next tensor has no room."""
    if shard_mib is None:
        return [dict(tensors)]
    room = int(shard_mib * MIB)
    shards: list[dict[str, Tensor]] = [{}]
    left = room
    for name, tensor in tensors.items():
        needed = _n_bytes(tensor) + HEADER
        if needed > room:
            raise ValueError(
                f"a shard must hold the largest tensor, {name} with {needed / MIB:.2f} MiB, got {shard_mib:g} MiB: "
                "allow larger shards"
            )
        if needed > left:
            shards.append({})
            left = room
        shards[-1][name] = tensor
        left -= needed
    return shards


def _n_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _mark(tensors: Mapping[str, Tensor]) -> str:
    """Names a model by its numbers."""
    mark = blake2b(digest_size=16)
    for tensor in tensors.values():
        mark.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return mark.hexdigest()


DRAWS = {Tensor.uniform_, Tensor.normal_}


class Undrawn(TorchFunctionMode):
    """Leaves new parameters as memory happens to be: drawing them is most of the time that a model takes to open."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func in DRAWS or getattr(func, "__module__", None) == nn.init.__name__:
            return args[0] if args else named["tensor"]
        return func(*args, **named)
