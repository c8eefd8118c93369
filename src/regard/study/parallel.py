"""Jobs in processes of their own, several at a time."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

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
