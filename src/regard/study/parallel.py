"""Jobs in processes of their own, several side by side."""

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
ON_GPU = 8  # small models leave most of a large GPU idle


def at_once(device: str) -> int:
    """Gives how many jobs a machine does side by side: one a core, or some that share a GPU."""
    return ON_GPU if device == "cuda" else len(os.sched_getaffinity(0))


def side_by_side(work: Callable[[T], None], jobs: Sequence[T], at_once: int) -> Iterator[tuple[T, int]]:
    """Does all jobs, so many at once, and tells of each that has ended, with its process's exit code.

    `work` is a function of a module. Whoever stops listening, or is stopped by a signal, stops the processes too.
    """
    if at_once < 1:
        raise ValueError(f"there must be 1 or more jobs at once, got {at_once}")
    waiting, running = list(jobs), Running()
    with _told_to_stop(), closing(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                _start(work, waiting.pop(0), running)
            for sentinel in wait(list(running)):
                process, job = running.pop(sentinel)  # pyright: ignore[reportArgumentType]
                process.join()
                yield job, process.exitcode or 0


class Running(dict[int, tuple[SpawnProcess, Any]]):
    """The processes at work, by what tells that they have ended, each with its job."""

    def close(self) -> None:
        """Stops them all, each once, and waits: a run saves where it stands."""
        for process, _ in self.values():
            process.terminate()
        for process, _ in self.values():
            process.join()


def _start(work: Callable[[T], None], job: T, running: Running) -> None:
    process = get_context("spawn").Process(target=_begin, args=(work, job, os.getpid()))
    process.start()
    running[process.sentinel] = process, job


def to_file(path: Path) -> None:
    """Sends all that this process says into a file from now on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file.fileno(), stream.fileno())


def _begin(work: Callable[[T], None], job: T, parent: int) -> None:
    os.setpgid(0, 0)  # Ctrl-C is the parent's: it tells each of us once
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    work(job)


def _end_with(parent: int) -> None:
    """Stops this process, as a signal would, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Lets SIGTERM be heard as Ctrl-C is, for a while."""
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
