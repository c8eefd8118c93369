"""How many bytes a call needs at its peak, beyond what was there before it."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch

T = TypeVar("T")

THRESHOLD, LEAST = "MALLOC_MMAP_THRESHOLD_", 1 << 16  # of glibc, in bytes
STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Make = Callable[[T, torch.device], Callable[[], Any]]


def peak_bytes(make: Make[T], tasks: Sequence[T], device: torch.device) -> list[int] | None:
    """Measures what the call of each task needs; None on a machine that does not tell.

    On a CPU in one process of its own, where nothing else is allocated; `make` is a function of a module.
    """
    if device.type == "cuda":
        return [_on_gpu(make(task, device), device) for task in tasks]
    if not FORGET.exists():
        return None
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    child = context.Process(target=_measure_here, args=(make, list(tasks), answer))
    with _all_given_back():
        child.start()
    child.join()
    return answer.get() if child.exitcode == 0 else None


@contextmanager
def _all_given_back() -> Iterator[None]:
    """Lets a process that is started now give back at once what it frees, so that it is seen when it is taken again."""
    before = os.environ.get(THRESHOLD)
    os.environ[THRESHOLD] = str(LEAST)
    try:
        yield
    finally:
        os.environ.pop(THRESHOLD)
        if before is not None:
            os.environ[THRESHOLD] = before


def _on_gpu(call: Callable[[], Any], device: torch.device) -> int:
    call()  # what libraries keep for themselves from the first call on is not the call's
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _measure_here(make: Make[T], tasks: list[T], answer: Any) -> None:
    torch.set_num_threads(1)
    try:
        answer.put([_on_cpu(make(task, torch.device("cpu"))) for task in tasks])
    except OSError:  # a machine on which peaks cannot be forgotten
        answer.put(None)


def _on_cpu(call: Callable[[], Any]) -> int:
    call()
    before = _read("VmRSS")
    FORGET.write_text("5")  # the peak begins anew (proc(5))
    call()
    return max(0, _read("VmHWM") - before)


def _read(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
