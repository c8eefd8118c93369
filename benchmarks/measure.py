"""Interleaved timing, the machine's ceilings, and the files of results."""

import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from regard.study.timing import Timing

RESULTS = Path(__file__).parent / "results"


def interleave(
    calls: dict[str, Callable[[], Any]],
    device: str,
    seconds: float,
    least: int = 5,
    most: float = math.inf,
) -> dict[str, Timing]:
    """Time several versions in turn, round after round, so that a slow moment of the machine affects all of them.

    Return medians and quartiles. On a CPU seconds are wall-clock time, because versions use several threads or other
    processes; `regard.study.timing.take_turns` takes CPU time. A version that has taken more than `most` seconds sits
    out the rounds after the first `least`.
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
    return {name: quartiles(times) for name, times in taken.items()}


def large_product(device: str, dtype: torch.dtype) -> tuple[Callable[[], Any], float]:
    """Return a large matrix product, the ceiling for everything timed beside it, and its number of operations."""
    n = 8192 if device == "cuda" else 1536
    a, b = torch.randn(n, n, device=device).to(dtype), torch.randn(n, n, device=device).to(dtype)
    return lambda: a @ b, 2.0 * n**3


def large_read(n_bytes: int) -> Callable[[], Any]:
    """Return a call that reads so many bytes, the ceiling for what reads its weights once; few stay in a cache."""
    numbers = torch.ones(n_bytes // 4)
    return numbers.sum


def copy_rate() -> float:
    """Measure the bytes per second, read or written, of a large copy on a GPU."""
    a = torch.randn(2**29, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() * 4 / interleave({"copy": lambda: b.copy_(a)}, "cuda", 0.5, least=10)["copy"].median


def keep(name: str, record: dict[str, Any], folder: Path | None) -> None:
    """Print the record as one JSON line, and save it in the folder of results."""
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


def quartiles(times: list[float]) -> Timing:
    low, median, high = statistics.quantiles(times, n=4)
    return Timing(median, low, high)
