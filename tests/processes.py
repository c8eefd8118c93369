"""Processes that a test may kill."""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

import torch

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(["regard.train.trainer"])


def start(function: Callable[..., None], *args: Any) -> BaseProcess:
    """Call a function of a module in a process of its own, in one thread as the tests: two add in another order.

    It is forked from a server that has imported ours and PyTorch alone: a fork of the process of the tests would lack
    the threads of every library that other tests have used, and keep the locks which those held.
    """
    process = _CONTEXT.Process(target=_in_one_thread, args=(function, *args))
    process.start()
    return process


def _in_one_thread(function: Callable[..., None], *args: Any) -> None:
    torch.set_num_threads(1)
    function(*args)
