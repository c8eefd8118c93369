"""How long calls take, each timed in turn with the others."""

import statistics
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the median of its repeats, and the fastest and slowest of them."""

    median: float
    low: float
    high: float


def take_turns(calls: dict[K, Callable[[], Any]], device: torch.device, rounds: int) -> dict[K, Timing]:
    """Times calls round after round, so that a slow moment of the machine hits all alike; a first round warms up."""
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
    """Gives the seconds of one call, what it leaves a GPU to do included.

    On a CPU they are those in which a core worked for this process: with one thread the time it would take on a machine
    without other programs, whatever else runs here.
    """
    now = time.perf_counter if device.type == "cuda" else time.process_time
    _wait(device)
    began = now()
    call()
    _wait(device)
    return now() - began


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets one core do all arithmetic for a while: how much several bring depends on the size, and would blur a law."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
