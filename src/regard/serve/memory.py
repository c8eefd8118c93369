"""Memory that is free but still held: how a server that runs for weeks gives it back to the system."""

import ctypes
import sys
from functools import cache
from threading import Event, Thread

MAX_ARENAS = 2
TRIM_SECONDS = 20.0
M_ARENA_MAX = -8  # of mallopt, in glibc's malloc.h


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc; others hold back little, and have neither function."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") and hasattr(library, "mallopt") else None


def limit_arenas(n_arenas: int = MAX_ARENAS) -> None:
    """Let all threads that start from now on share a few heaps.

    glibc gives each thread a heap of its own, up to eight for each core. What a thread has freed only that thread can
    use again, so that each heap grows to the largest work that its thread ever did.
    """
    library = _glibc()
    if library is not None:
        library.mallopt(M_ARENA_MAX, n_arenas)


def release_free_memory() -> None:
    """Return free pages to the system; glibc itself does so only at the end of a heap, never in its midst."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


class MemoryTrimmer:
    """A thread that returns free memory every few seconds: translations and traces leave gaps behind."""

    def __init__(self, seconds: float = TRIM_SECONDS):
        self.seconds = seconds
        self._closed = Event()
        self._thread = Thread(target=self._work, name="memory", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._closed.wait(self.seconds):
            release_free_memory()
