"""Clocks, memory, and the machine's ceilings."""

import json
import math
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds for one call: the median of the repeats, and the middle half of them."""

    median: float
    low: float
    high: float


def interleave(
    calls: dict[str, Callable[[], Any]],
    device: str,
    seconds: float,
    least: int = 5,
    most: float = math.inf,
) -> dict[str, Timing]:
    """Times several versions in turn, round after round, so that a slow moment of the machine hits all alike.

    A version that has taken more than `most` seconds sits out the rounds after the `least` that all take part in.
    """
    for call in calls.values():
        call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    start, rounds = time.perf_counter(), 0
    while rounds < least or time.perf_counter() - start < seconds:
        for name, call in calls.items():
            if rounds < least or sum(taken[name]) < most:
                taken[name].append(_clock(call, device))
        rounds += 1
    return {name: _middle(times) for name, times in taken.items()}


def extra_memory(make: Callable[[str], Callable[[], Any]], device: str) -> int:
    """Measures the bytes that one call needs beyond its inputs, at its peak; on a CPU in a process of its own."""
    if device == "cuda":
        call = make(device)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    context = multiprocessing.get_context("spawn")
    answer = context.SimpleQueue()
    child = context.Process(target=_measure_here, args=(make, answer))
    child.start()
    child.join()
    if child.exitcode != 0:
        raise RuntimeError(f"measuring memory ended with exit code {child.exitcode}")
    return answer.get()


def large_product(device: str, dtype: torch.dtype) -> tuple[Callable[[], Any], float]:
    """Makes a large matrix product, the ceiling for all else, to be timed beside it; gives its operations too."""
    n = 8192 if device == "cuda" else 1536
    a, b = torch.randn(n, n, device=device).to(dtype), torch.randn(n, n, device=device).to(dtype)
    return lambda: a @ b, 2.0 * n**3


def large_read(n_bytes: int) -> Callable[[], Any]:
    """Makes one reading of so many bytes, the ceiling for what reads its weights once; small ones stay in a cache."""
    numbers = torch.ones(n_bytes // 4)
    return numbers.sum


def copy_rate() -> float:
    """Measures the bytes a second, read or written, of a large copy on a GPU."""
    a = torch.randn(2**29, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / interleave({"copy": lambda: b.copy_(a)}, "cuda", 0.5, least=10)["copy"].median


def keep(name: str, record: dict[str, Any], folder: Path | None) -> None:
    """Prints the record as one JSON line, and keeps it in the results."""
    line = json.dumps(record)
    print(line)
    target = (folder or RESULTS) / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(line + "\n", encoding="utf-8")


def _clock(call: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def _middle(times: list[float]) -> Timing:
    low, median, high = statistics.quantiles(times, n=4)
    return Timing(median, low, high)


def _measure_here(make: Callable[[str], Callable[[], Any]], answer: Any) -> None:
    call = make("cpu")
    small = torch.randn(64, 64, requires_grad=True)
    (small @ small).sum().backward()  # the library's own start-up is not the call's memory
    before = _peak()
    call()
    answer.put(_peak() - before)


def _peak() -> int:
    """Gives the most bytes this process ever held; Linux carries ru_maxrss over from the parent, so VmHWM is better."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
