"""Where kernels run in tests: on a GPU, or else in Triton's interpreter."""

import importlib
import importlib.util
import os
import sys

import torch

import regard.attention  # noqa: F401

KERNELS = ("additive", "relative_forward", "beam", "decode", "linear", "norm")

# Read when the kernels are first imported, which no other test does on a machine without a GPU.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def import_kernels() -> None:
    """Imports them without the hook that checks types in tests: Triton reads functions, and must not find wrappers."""
    hooks = [finder for finder in sys.meta_path if type(finder).__module__.startswith("jaxtyping")]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in hooks]
    try:
        for name in KERNELS:
            importlib.import_module(f"regard.kernels.{name}")
    finally:
        sys.meta_path[:0] = hooks


if importlib.util.find_spec("triton"):
    import_kernels()
