"""Work divided among processes, with results in the order of the work and little of it waiting."""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
WAITING = 3  # pieces of work for each process
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


# Calls a function for each piece of work, and yields the results in order.
Workers = Callable[..., Iterator[Any]]


def free_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def start_workers(n: int) -> Iterator[Workers]:
    """Yield what divides work among n processes, or does it in this one if n is 1.

    Processes are started afresh, since a fork of a process with threads may wait for ever. What is not begun when the
    block ends, by Ctrl-C too, is left.
    """
    if n < 1:
        raise ValueError(f"there must be 1 worker or more, got {n}")
    if n == 1:
        yield map
        return
    pool = ProcessPoolExecutor(n, get_context("spawn"), _begin)
    given = {name: os.environ.get(name) for name in THREADS}
    os.environ |= dict.fromkeys(THREADS, "1")  # of a process: they do not divide their own work once more
    try:
        list(pool.map(_start, range(n)))
    finally:
        for name, value in given.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    try:
        yield lambda function, work: _in_order(pool, function, work, n * WAITING)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start(_: int) -> None:
    """Do nothing: a pool starts its processes when it first has work."""


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first of them ends the others
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, by a signal too, and will send no more work."""
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)


def _in_order(pool: ProcessPoolExecutor, function: Callable[[A], B], work: Iterable[A], most: int) -> Iterator[B]:
    waiting: deque[Future[B]] = deque()
    for each in work:
        waiting.append(pool.submit(function, each))
        if len(waiting) >= most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
