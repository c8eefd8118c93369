"""What holds for every test."""

import importlib
import os
import sys

import jaxtyping
import pytest
from hypothesis import settings

from regard.extras import is_installed

if is_installed("torch"):  # tests/no_torch.py hides it
    import torch

    import regard.attention  # noqa: F401

# Examples are the same in every run, and a first call that imports something is no failure.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Give each test one thread, whatever another has left, and so the same bits.

    Sizes here are tiny: a second one only makes each step wait, for seconds where the cores are busy.
    """
    if is_installed("torch"):
        torch.set_num_threads(1)


@pytest.fixture
def unchecked():
    """Leaves arguments unchecked, as they are for users: types are checked at run time in tests alone."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# Without a GPU the kernels run in Triton's interpreter, which must be said before they are first imported.
if is_installed("torch") and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def import_kernels() -> None:
    """Imports them without the hook that checks types in tests: Triton reads functions, and must not find wrappers."""
    hooks = [finder for finder in sys.meta_path if type(finder).__module__.startswith("jaxtyping")]
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in hooks]
    try:
        importlib.import_module("regard.kernels")
    finally:
        sys.meta_path[:0] = hooks


if is_installed("triton"):
    import_kernels()
