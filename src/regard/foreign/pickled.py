"""Weights in PyTorch's own form, of which tensors alone are read: what else is pickled there stays as it is."""

import pickle
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.data.files import check_regular
from regard.foreign.folder import check_memory
from regard.shapes import Array

FLOATS = {torch.float64, torch.float32, torch.float16, torch.bfloat16}


@dataclass(frozen=True, eq=False)
class PickledTensor:
    """A tensor of such a file, mapped where the file can be."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def size(self) -> int:
        return self.tensor.numel()

    def floats(self) -> Array:
        """Return its numbers."""
        whole = self.tensor.detach().contiguous()
        return (whole.float() if whole.dtype == torch.bfloat16 else whole).numpy()


def read_tensors(path: Path) -> dict[str, PickledTensor]:
    """Read the tensors of a file with `weights_only`, which builds nothing but tensors and refuses everything else."""
    check_memory(max(check_regular(path), _unpacked_size(path)), path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a protocol that it may not know, which the outcome tells
            held = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        what = str(error).replace("\n", " ")
        raise ValueError(
            f"{path}: weights must be tensors alone, which is all that is read, got something else ({what[:200]}): "
            "save the model as safetensors"
        ) from error
    except (RuntimeError, EOFError, OSError, KeyError, ValueError, AttributeError, IndexError, TypeError) as error:
        raise ValueError(
            f"{path}: this is not a complete file of tensors ({str(error)[:200]}): copy it again"
        ) from error
    if not isinstance(held, dict):
        raise ValueError(f"{path}: weights must be tensors by name, got {type(held).__name__}: copy the folder again")
    return {str(name): PickledTensor(_checked(path, str(name), tensor)) for name, tensor in held.items()}


def _unpacked_size(path: Path) -> int:
    """Return the bytes that a file unpacks to: those of tensors are stored as they are."""
    if not zipfile.is_zipfile(path):
        return 0
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(each.file_size for each in archive.infolist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: this is not a complete file of tensors ({error}): copy it again") from error


def _checked(path: Path, name: str, tensor: object) -> Tensor:
    """Return a tensor of floating-point numbers that has memory for all of them."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
        raise ValueError(f"{path}: weights must be plain tensors, got {type(tensor).__name__} as {name}: copy it again")
    held = tensor.untyped_storage().nbytes()
    if tensor.numel() * tensor.element_size() > held:
        shape = f"the shape {tuple(tensor.shape)} with {held} bytes"
        raise ValueError(f"{path}: a tensor must have memory for its numbers, got {name} of {shape}: copy it again")
    return tensor
