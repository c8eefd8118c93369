"""Repeats of a measurement: in processes of their own, their means, a t-test, and the signature."""

import math
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard import __version__
from regard.shapes import Float

T = TypeVar("T")
JOBS_ON_GPU = 8  # small models leave most of a large GPU idle


def default_jobs(device: str) -> int:
    """Return how many jobs to run at a time: one per core, or some that share a GPU."""
    return JOBS_ON_GPU if device == "cuda" else len(os.sched_getaffinity(0))


def run_jobs(work: Callable[[T], None], jobs: Sequence[T], n_parallel: int) -> Iterator[tuple[T, int]]:
    """Run all jobs, `n_parallel` at a time, and yield each that has ended with its process's exit code.

    `work` is a function of a module. A consumer that stops, or is stopped by a signal, stops the processes too.
    """
    if n_parallel < 1:
        raise ValueError(f"there must be 1 or more jobs at once, got {n_parallel}")
    waiting, running = list(jobs), RunningJobs()
    with _sigterm_as_interrupt(), closing(running):
        while waiting or running:
            while waiting and len(running) < n_parallel:
                _start(work, waiting.pop(0), running)
            for sentinel in wait(list(running)):
                process, job = running.pop(sentinel)  # pyright: ignore[reportArgumentType]
                process.join()
                yield job, process.exitcode or 0


class RunningJobs(dict[int, tuple[SpawnProcess, Any]]):
    """Processes by their sentinels, each with its job."""

    def close(self) -> None:
        """Terminate all processes and wait for them: a training run saves a checkpoint first."""
        for process, _ in self.values():
            process.terminate()
        for process, _ in self.values():
            process.join()


def _start(work: Callable[[T], None], job: T, running: RunningJobs) -> None:
    process = get_context("spawn").Process(target=_run, args=(work, job, os.getpid()))
    process.start()
    running[process.sentinel] = process, job


def redirect_output(path: Path) -> None:
    """Append all further output of this process to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file.fileno(), stream.fileno())


def _run(work: Callable[[T], None], job: T, parent: int) -> None:
    os.setpgid(0, 0)  # Ctrl-C goes to the parent, which then terminates each of us once
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    work(job)


def _end_with(parent: int) -> None:
    """Stop this process, as a signal would, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class MeanStd:
    """The mean of some measurements, and their standard deviation; 0 for a single one."""

    mean: float
    std: float = field(metadata={"json": "spread"})
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.std:.3f}".replace("-", "−")

    def format(self, digits: int) -> str:
        """Return the mean with its deviation, which a single measurement does not have."""
        deviation = "" if self.n < 2 else f" ± {self.std:.{digits}f}"
        return f"{self.mean:.{digits}f}{deviation}".replace("-", "−")


def mean_std(values: Float[Tensor, " n"] | Iterable[float]) -> MeanStd:
    """Summarise repeats of one measurement."""
    numbers = torch.as_tensor(values if isinstance(values, Tensor) else list(values), dtype=torch.float64)
    if numbers.numel() == 0:
        raise ValueError("a mean needs one measurement or more, got 0")
    deviation = float(numbers.std()) if numbers.numel() > 1 else 0.0
    return MeanStd(float(numbers.mean()), deviation, numbers.numel())


# Student's t, two-sided at 5 %, for 1 … 10 degrees of freedom; more are judged as 10, a little too strictly.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def differs(one: MeanStd, other: MeanStd) -> bool | None:
    """Return whether two means differ by Welch's t-test at 5 %; None where either is a single value.

    Degrees of freedom are rounded down. Each test stands alone: one in twenty without an effect is a false alarm.
    """
    if min(one.n, other.n) < 2:
        return None
    a, b = one.std**2 / one.n, other.std**2 / other.n
    if a + b == 0.0:
        return one.mean != other.mean
    freedom = (a + b) ** 2 / (a**2 / (one.n - 1) + b**2 / (other.n - 1))
    return abs(one.mean - other.mean) > STUDENT_T[min(int(freedom), len(STUDENT_T)) - 1] * math.sqrt(a + b)


def signature(device: str, **more: Any) -> dict[str, Any]:
    """Return versions, machine and date, with what else could move a number, such as its seed."""
    return {
        "regard": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": torch.cuda.get_device_name() if device.startswith("cuda") else cpu_name(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        **more,
    }


def cpu_name() -> str:
    """Return the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Return the version of these sources, where they lie in a repository of their own."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
