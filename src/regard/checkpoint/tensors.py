"""The tensors of a module, to a safetensors file and back."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from regard.model.shard import is_shard


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
    return {name: t.full_tensor() if is_shard(t) else t for name, t in tensors.items()}  # pyright: ignore


def put(target: Tensor, value: Tensor) -> None:
    """Copies a whole tensor into another, which may be one process's shard."""
    if is_shard(target):
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
