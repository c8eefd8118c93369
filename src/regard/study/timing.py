"""Clocks, peak memory, power laws; used by benchmarks/ too."""

import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median of its repeats and the ends of their range, which its maker defines."""

    median: float
    low: float
    high: float


def take_turns(calls: dict[K, Callable[[], Any]], device: torch.device, rounds: int) -> dict[K, Timing]:
    """Time calls round after round, so that a slow moment of the machine affects all; a first round warms up."""
    if rounds < 1:
        raise ValueError(f"rounds must be 1 or more, got {rounds}")
    taken: dict[K, list[float]] = {name: [] for name in calls}
    for at in range(rounds + 1):
        for name, call in calls.items():
            seconds = clock(call, device)
            if at:
                taken[name].append(seconds)
    return {name: Timing(statistics.median(times), min(times), max(times)) for name, times in taken.items()}


def clock(call: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of one call, including the work it leaves to a GPU.

    On a CPU they are seconds of a core's work for this process: with one thread the time it would take on an idle
    machine, whatever else runs here.
    """
    now = time.perf_counter if device.type == "cuda" else time.process_time
    _wait(device)
    began = now()
    call()
    _wait(device)
    return now() - began


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread within the block: the gain by several depends on the size, and would blur a law."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


T = TypeVar("T")

THRESHOLD, LEAST = "MALLOC_MMAP_THRESHOLD_", 1 << 16  # of glibc, in bytes
STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")

Make = Callable[[T, torch.device], Callable[[], Any]]


def peak_bytes(make: Make[T], tasks: Sequence[T], device: torch.device) -> list[int] | None:
    """Measure the peak memory of each task's call; None on a machine without such counters.

    On a CPU in one process of its own, where nothing else is allocated; `make` is a function of a module.
    """
    if device.type == "cuda":
        return [_on_gpu(make(task, device), device) for task in tasks]
    if not FORGET.exists():
        return None
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    child = context.Process(target=_measure_here, args=(make, list(tasks), answer))
    with _eager_free():
        child.start()
    child.join()
    return answer.get() if child.exitcode == 0 else None


@contextmanager
def _eager_free() -> Iterator[None]:
    """Make a process started within the block return freed memory at once, so that its next allocation is counted."""
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


@dataclass(frozen=True)
class Fit:
    """`value ≈ factor · size^exponent` by least squares of logarithms over the sizes low … high."""

    exponent: float
    factor: float
    low: int
    high: int


def fit_power(sizes: Sequence[int], values: Sequence[float | int], last: int = 4) -> Fit:
    """Fit the `last` largest sizes, where lower-order terms have vanished."""
    points = sorted(zip(sizes, values, strict=True))[-last:]
    if len(points) < 2 or len({size for size, _ in points}) != len(points):
        raise ValueError(f"an exponent needs 2 or more different sizes, got {list(sizes)}")
    if min(min(point) for point in points) <= 0:
        raise ValueError(f"a power law has sizes and values above 0, got {points}")
    x, y = [math.log(size) for size, _ in points], [math.log(value) for _, value in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    exponent = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return Fit(exponent, math.exp(mean_y - exponent * mean_x), points[0][0], points[-1][0])


LAST = 3  # sizes: two doublings
SEEN = 1.0  # MiB below which a process's memory, which is counted in pages, tells little


def exponent(sizes: Sequence[int], values: Sequence[float | int | None], least: float = 0.0) -> float | None:
    """Fit the largest sizes with values above the least; None where there are fewer than three."""
    points = [(size, x) for size, x in zip(sizes, values, strict=False) if x is not None and x > least]
    if len(points) < LAST:
        return None
    return fit_power([size for size, _ in points], [x for _, x in points], LAST).exponent
