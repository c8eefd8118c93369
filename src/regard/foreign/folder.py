"""Folders of Hugging Face's Transformers: what lies in them, read and checked; nothing in them is ever run.

Weights are numbers alone: safetensors files, or `.bin` files through PyTorch's reader of tensors, which unpickles
nothing else. A `trust_remote_code`, an `auto_map` or a Python file in a folder has no meaning here.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from regard.checkpoint import CONFIG, INDEX, WEIGHTS, read_json
from regard.checkpoint.arrays import read_file
from regard.data.files import MIB, check_regular, read_whole
from regard.extras import needed_by
from regard.shapes import Array

GENERATION, TOKENIZER = "generation_config.json", "tokenizer_config.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
LARGEST_MODEL = 256 * MIB  # bytes of a SentencePiece model
ADAPTER = "adapter_config.json"


@runtime_checkable
class StoredNumbers(Protocol):
    """An array of a file, which is read when its numbers are asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def size(self) -> int: ...

    def floats(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class ForeignFolder:
    """A folder with its settings: of the model, of its search and of its tokenizer."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]  # what the file of the search says, or an older config.json
    tokenizer: Mapping[str, Any]

    def json(self, name: str) -> dict[str, Any]:
        """Read another of its JSON files."""
        return read_json(self.path / name)

    def bytes(self, name: str) -> bytes:
        """Read a file whole that a tokenizer consists of."""
        path = self.path / name
        try:
            return read_whole(path, LARGEST_MODEL)
        except FileNotFoundError as error:
            raise ValueError(f"{path}: this file is missing from the model folder") from error

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        return (self.path / name).exists()

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a setting of the model that is a whole number."""
        value = self.config.get(name)
        value = default if value is None else value
        if type(value) is not int or not 0 <= value < 1 << 40:
            raise ValueError(f"{self.path / CONFIG}: {name} must be a whole number from 0 on, got {value!r:.60}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """Return a setting of the model that is true or false."""
        value = self.config.get(name, default)
        if type(value) is not bool:
            raise ValueError(f"{self.path / CONFIG}: {name} must be true or false, got {value!r:.60}")
        return value


def open_foreign(path: Path) -> ForeignFolder:
    """Read the settings of a folder; raise ValueError for what is no model."""
    if (path / ADAPTER).exists():
        raise ValueError(
            f"{path}: this must be a whole model, got an adapter ({ADAPTER}): merge it into its model first"
        )
    if not (path / CONFIG).is_file():
        raise ValueError(f"{path}: a model of Transformers must have a {CONFIG}, got a folder without: name another")
    config = read_json(path / CONFIG)
    generation = read_json(path / GENERATION) if (path / GENERATION).exists() else config
    tokenizer = read_json(path / TOKENIZER) if (path / TOKENIZER).exists() else {}
    return ForeignFolder(path, config, generation, tokenizer)


def stored_numbers(path: Path) -> dict[str, StoredNumbers]:
    """Map the weights of a folder, in one file or several; a missing, damaged or foreign file is named."""
    if (path / WEIGHTS).exists():
        return dict(read_file(path / WEIGHTS)[0])
    if (path / INDEX).exists():
        arrays: dict[str, StoredNumbers] = {}
        for file in indexed_files(path / INDEX):
            arrays |= read_file(file)[0]
        return arrays
    if not (path / PICKLED).exists() and not (path / PICKLED_INDEX).exists():
        raise ValueError(
            f"{path}: a model must have weights, got neither {WEIGHTS} nor {PICKLED}: copy the folder again"
        )
    files = [path / PICKLED] if (path / PICKLED).exists() else indexed_files(path / PICKLED_INDEX)
    with needed_by(f"{files[0]}: weights in PyTorch's own form"):
        read_tensors = import_module("regard.foreign.pickled").read_tensors
    found = [read_tensors(file) for file in files]
    return {name: array for each in found for name, array in each.items()}


def indexed_files(index: Path) -> list[Path]:
    """Return the files that an index names, which must lie beside it."""
    files = read_json(index).get("weight_map")
    named = isinstance(files, dict) and files and all(type(name) is str for name in files.values())
    if not isinstance(files, dict) or not named:
        raise ValueError(f"{index}: weight_map must name a file of this folder for each tensor, got {files!r:.60}")
    names = sorted(set(files.values()))
    outside = [name for name in names if Path(name).name != name or name in {".", ".."}]
    if outside:
        raise ValueError(
            f"{index}: weight_map must name files of this folder, got {outside[0]!r}: copy the folder again"
        )
    for name in names:
        if not (index.parent / name).exists():
            raise ValueError(f"{index.parent / name}: this file is missing from the model folder")
        check_regular(index.parent / name)
    return [index.parent / name for name in names]


def check_memory(n_bytes: int, path: Path) -> None:
    """Raise ValueError where the numbers of a model cannot be held, before any of them is."""
    there = memory_size()
    if there is not None and n_bytes > there:
        sizes = f"{n_bytes / 2**30:,.1f} GiB of {there / 2**30:,.1f} GiB"
        raise ValueError(
            f"{path}: a model must fit into this machine's memory, got one that needs {sizes}: use another"
        )


def memory_size() -> int | None:
    """Return the bytes of this machine's memory, where it tells."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
