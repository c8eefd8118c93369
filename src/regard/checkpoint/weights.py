"""The weights of a model folder: one safetensors file, or shards with an index in Hugging Face's layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor

from regard.checkpoint.record import read_json, write_json
from regard.checkpoint.small import made_small, precision_of, restored
from regard.checkpoint.tensors import read_noted, write_tensors

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
    small = made_small(tensors, form.precision)
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
    return Weights(path, restored(tensors), precision_of(tensors), len(paths), n_bytes)


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
