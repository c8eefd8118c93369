"""A PyTorch model to a folder and back: safetensors files, shards, precisions; nothing is pickled or half-written."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard import __version__
from regard.atomic import atomic_folder, write_checksums
from regard.build import build_model
from regard.checkpoint import (
    ALIGNMENT,
    CARD,
    CONFIG,
    INDEX,
    SCORES,
    WEIGHTS,
    StoredArrays,
    check_sizes,
    is_model_file,
    load_tokenizer,
    model_folder,
    portable,
    read_scores,
    read_settings,
    read_stored,
    settings_table,
    write_json,
)
from regard.checkpoint.arrays import StoredArray, read_file, write_arrays
from regard.config import ModelSettings, Settings
from regard.data.tokenizer import Tokenizer
from regard.engine.native_weights import check_shapes
from regard.model import Seq2Seq
from regard.model.quantize import quantize
from regard.ops import is_sharded

M = TypeVar("M", bound=nn.Module)


def unique_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, shared ones once, under the first of their names; shards stay shards."""
    seen: set[int] = set()
    tensors = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[name] = tensor.detach()
    return tensors


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def gathered(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put tensors together whose shards lie in several processes, all of which must ask."""
    return {name: t.full_tensor() if is_sharded(t) else t for name, t in tensors.items()}  # pyright: ignore


def put(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into another, which may be one process's shard."""
    if is_sharded(target):
        from torch.distributed.tensor import distribute_tensor

        value = distribute_tensor(value.to(target.device), target.device_mesh, target.placements)  # pyright: ignore
    target.copy_(value)


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Put saved tensors into a module that must have just these, of just these shapes."""
    wanted = unique_tensors(module)
    check_shapes(shapes(tensors), shapes(wanted), path)
    with torch.no_grad():
        for name, tensor in wanted.items():
            put(tensor, tensors[name])


def write_tensors(path: Path, tensors: Mapping[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """Write a safetensors file; a full disk is an OSError, as it is everywhere else."""
    write_arrays(path, {name: tensor.contiguous() for name, tensor in tensors.items()}, notes, save_file)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file; a missing, truncated or foreign one is named."""
    return read_noted(path)[0]


def read_noted(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file with the notes that its writer left in it."""
    arrays, notes = read_file(path)
    return {name: _tensor(array) for name, array in arrays.items()}, notes


def _tensor(array: StoredArray) -> Tensor:
    tensor = torch.from_numpy(array.numpy().copy())
    return tensor.view(torch.bfloat16) if array.dtype == "BF16" else tensor


MIB = 1 << 20
HEADER = 256  # bytes of a shard's header for each tensor, and then some


@dataclass(frozen=True)
class Form:
    """How weights lie on disk: in which precision, and in files of at most how many MiB."""

    precision: str = "float32"
    shard_mib: float | None = None  # one file


def write_weights(folder: Path, tensors: Mapping[str, Tensor], form: Form) -> None:
    """Write `model.safetensors`, or, where it would be larger than a shard may be, shards and their index.

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


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a folder, whatever their form, as they are computed with."""
    return _tensors(read_stored(folder))


def _tensors(stored: StoredArrays) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in stored.restored().items()}


def _shared_out(tensors: Mapping[str, Tensor], shard_mib: float | None) -> list[dict[str, Tensor]]:
    """Deal tensors out to shards in their order, a new one where the next tensor has no room."""
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
    """Name a model by its numbers."""
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


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model that can be used: its parameters, its words, and the settings it was made with."""

    model: Seq2Seq
    tokenizer: Tokenizer
    settings: Settings


def save_model(folder: Path, checkpoint: Checkpoint, scores: Mapping[str, Any], form: Form = Form()) -> None:
    """Write one folder that works on another machine; a model that was there is replaced once this one is complete."""
    with atomic_folder(folder, is_model_file) as part:
        _write(part, checkpoint, scores, form)


def copy_model(folder: Path, out: Path, form: Form) -> None:
    """Write a model anew in another form; its settings, tokenizer, scores, card and choice of heads stay.

    Scores of another precision than the new one name theirs.
    Only where its texts lay is cut to the last folder and the file: the rest tells of one machine.
    """
    folder = model_folder(folder)
    checkpoint = load_model(folder)
    with atomic_folder(out, is_model_file) as part:
        scores = _noted(read_scores(folder), read_stored(folder).precision, form.precision)
        _write(part, replace(checkpoint, settings=portable(checkpoint.settings)), scores, form)
        for name in (CARD, ALIGNMENT):
            if (folder / name).exists():
                shutil.copyfile(folder / name, part / name)


def _noted(scores: Mapping[str, Any], measured: str, precision: str) -> dict[str, Any]:
    """Return scores in which those of a model of another precision say so."""
    old = {kind: table for kind, table in scores.items() if kind in {"test", "valid"} and measured != precision}
    return {**scores, **{kind: {"precision": measured, **table} for kind, table in old.items()}}


def _write(part: Path, checkpoint: Checkpoint, scores: Mapping[str, Any], form: Form) -> None:
    write_weights(part, unique_tensors(checkpoint.model), form)
    checkpoint.tokenizer.save(part)
    write_checksums(part)  # of these alone: scores and settings may change later
    write_json(part / CONFIG, {"regard": __version__, "settings": settings_table(checkpoint.settings)})
    write_json(part / SCORES, dict(scores))


def load_model(folder: Path) -> Checkpoint:
    """Read a model folder, or the model inside a run's folder; raise ValueError naming the file that is wrong."""
    folder = model_folder(folder)
    made = read_settings(folder / CONFIG)
    tokenizer = load_tokenizer(folder, made)
    sizes = tokenizer.vocab_size("src"), tokenizer.vocab_size("tgt")
    model = restore(folder, made.model, lambda: build_model(made.model, sizes))
    return Checkpoint(model, tokenizer, made)


def restore(folder: Path, settings: ModelSettings, build: Callable[[], M]) -> M:
    """Build the module that a folder's settings describe, with its weights.

    Settings are compared with the shapes of the stored arrays before memory is taken for what they describe.
    """
    stored = read_stored(folder)
    check_sizes(settings, stored.arrays, folder / CONFIG)
    try:
        with torch.device("meta"), Undrawn():
            expected = shapes(unique_tensors(build()))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: {error}") from error
    check_shapes(stored.shapes(), expected, stored.path)
    with Undrawn():
        model = build()
    fill(model, _tensors(stored), stored.path)
    return model.eval()
