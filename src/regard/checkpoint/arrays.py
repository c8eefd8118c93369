"""Arrays in safetensors files, mapped and not copied; PyTorch is not needed, and NumPy only where it computes."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, prod
from mmap import ACCESS_COPY, mmap
from pathlib import Path
from typing import Any, BinaryIO

from safetensors import SafetensorError

from regard.data.files import MIB, check_regular
from regard.shapes import Array, np

# As safetensors names them, and NumPy. That has no bfloat16: its numbers are the upper halves of float32's.
DTYPES = {
    **{"F64": "f8", "F32": "f4", "F16": "f2", "BF16": "u2", "BOOL": "?"},
    **{f"{sign}{bits}": f"{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)},
}
ITEMSIZE = {name: 1 if form == "?" else int(form[1:]) for name, form in DTYPES.items()}
FLOAT32_MAX = (2 - 2**-23) * 2.0**127
LARGEST_JSON = 64 * MIB  # an index, or a header, of a million tensors


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array as it lies on disk, mapped and not copied."""

    content: memoryview  # its bytes
    dtype: str  # as safetensors names it
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return prod(self.shape)

    def numpy(self) -> Array:
        """Return it for NumPy, in which the numbers of bfloat16 are whole ones."""
        return np.frombuffer(self.content, DTYPES[self.dtype]).reshape(self.shape)

    def floats(self) -> Array:
        """Return its numbers, those of bfloat16 as float32."""
        array = self.numpy()
        return (array.astype(np.uint32) << 16).view(np.float32) if self.dtype == "BF16" else array

    def numbers(self) -> Any:
        """Return what C++ reads as it is, float32 and bytes; all else for NumPy."""
        if not self.size or not self.shape or self.dtype not in {"F32", "I8"}:
            return self.floats()
        return self.content.cast("f" if self.dtype == "F32" else "b", self.shape)

    def not_finite(self) -> float | None:
        """Return a number that float32 does not have, if there is one."""
        if not self.size or self.dtype not in {"F64", "F32", "F16", "BF16"}:
            return None
        if self.dtype == "F32" and self.size <= SMALL and isfinite(sum(self.content.cast("f"))):
            return None  # a sum is as finite as its numbers, and few are added before NumPy is imported
        wide = self.floats()
        with np.errstate(invalid="ignore"):
            ends = float(wide.min()), float(wide.max())  # either is NaN where any number is
        return next((end for end in ends if not abs(end) <= FLOAT32_MAX), None)


SMALL = 1 << 14


def read_file(path: Path) -> tuple[dict[str, StoredArray], dict[str, str]]:
    """Map a safetensors file: its arrays, and the notes that its writer left in it.

    The package safetensors would import NumPy or PyTorch to open one; its rules for headers are `_read_header`'s.
    """
    try:
        size = check_regular(path)
        with path.open("rb") as file:
            header, begin = _read_header(file, size)
            content = memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY) if size > begin else b"")[begin:]
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this file is missing from the model folder") from error
    except (_HeaderError, OSError) as error:
        raise ValueError(f"{path}: this is not a complete safetensors file ({error}): copy the folder again") from error
    notes = header.pop("__metadata__", {})
    unknown = sorted({str(each["dtype"]) for each in header.values()} - DTYPES.keys())
    if unknown:
        raise ValueError(f"{path}: weights must be of one of the types {', '.join(DTYPES)}, got {unknown[0]}")
    arrays = {}
    for name, each in header.items():
        first, end = each["data_offsets"]
        arrays[name] = StoredArray(content[first:end], each["dtype"], tuple(each["shape"]))
    return arrays, notes


def write_arrays(
    path: Path, arrays: Mapping[str, Any], notes: dict[str, str] | None, save: Callable[..., None]
) -> None:
    """Write a file by a function of the package safetensors; a full disk is an OSError, as it is everywhere else."""
    path.touch()
    mode = path.stat().st_mode  # the library lets nobody but its user read what it writes
    try:
        save(dict(arrays), path, notes)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))  # a full disk, for one
        if number is not None:
            raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error
        raise OSError(f"{path}: this file cannot be written ({error})") from error
    path.chmod(mode)


class _HeaderError(Exception):
    """A header breaks a rule."""


def _read_header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """Return a file's header and where the numbers begin; the arrays must fill the rest of it without gaps."""
    begin = 8 + int.from_bytes(file.read(8), "little")
    if not 8 < begin <= min(size, LARGEST_JSON):
        raise _HeaderError(f"its header must end within its {size} bytes, got {begin}")
    try:
        header = json.loads(file.read(begin - 8))
        arrays = sorted(
            (*each["data_offsets"], str(each["dtype"]), [*each["shape"]], name)
            for name, each in header.items()
            if name != "__metadata__"
        )
        sizes = [
            (first, end, None if dtype not in ITEMSIZE else prod(shape) * ITEMSIZE[dtype], min([0, *shape]))
            for first, end, dtype, shape, _ in arrays
        ]
        notes = header.get("__metadata__", {})
        if any(type(note) is not str for note in notes.values()):
            raise _HeaderError("its notes must be texts")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _HeaderError(f"its header is damaged: {error}") from error
    at = 0
    for (*_, name), (first, end, n_bytes, least) in zip(arrays, sizes, strict=True):
        if (
            type(first) is not int
            or type(end) is not int
            or first != at
            or least < 0
            or n_bytes not in {end - at, None}
        ):
            raise _HeaderError(f"{name} must have {n_bytes} bytes from {at} on, got {first} to {end}")
        at = end
    if at != size - begin:
        raise _HeaderError(f"its arrays must have {size - begin} bytes, got {at}")
    return header, begin
