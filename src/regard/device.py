"""Which device to run on: a CPU, or a GPU if there is one."""

import sys
from contextlib import suppress
from ctypes import CDLL

from regard.config import unknown
from regard.extras import is_installed, require

DEVICES = ("auto", "cpu", "cuda", "cuda:N")


def find_device(name: str) -> str:
    """Return the device of a name: for `auto`, the GPU if there is one; raise ValueError for one that is missing."""
    kind, colon, index = name.partition(":")
    if kind not in DEVICES or (colon and (kind != "cuda" or not index.isdecimal())):
        raise ValueError(unknown(name, list(DEVICES), "device"))
    if kind == "auto":
        return "cuda" if has_cuda() else "cpu"
    if kind == "cuda":
        require("torch", f"device {name!r}")
    if kind == "cuda" and not has_cuda():
        raise ValueError(f"device {name!r} needs a CUDA device, and there is none here: use cpu or auto")
    return name


def _has_driver() -> bool:
    """Tell whether NVIDIA's driver can be opened; `ctypes.util.find_library` would run a program to find it."""
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with suppress(OSError):
            CDLL(name)
            return True
    return False


def has_cuda() -> bool:
    """Tell whether there is a GPU; PyTorch, which takes seconds to import, is asked only if there is a driver."""
    if "torch" not in sys.modules and not _has_driver():
        return False
    if not is_installed("torch"):
        return False
    import torch

    return torch.cuda.is_available()
