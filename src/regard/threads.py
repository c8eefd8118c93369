"""Threads in compiled code: they come back from it before the program ends."""

import atexit
import os
from threading import Condition, current_thread, main_thread
from typing import Any

PATIENCE = 10.0  # seconds for which the end of the program waits


class CompiledCalls:
    """Calls into C++ that let other threads of Python run meanwhile.

    A daemon thread that comes back from such a call when Python has ended is unwound through frames of C++, which
    aborts the process. So the end of the program waits for the calls that are under way, and daemon threads begin none
    after it.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._n_running = 0
        self._closed = False

    def __enter__(self) -> None:
        with self._changed:
            while self._closed and current_thread() is not main_thread():
                self._changed.wait()
            self._n_running += 1

    def __exit__(self, *_: Any) -> None:
        with self._changed:
            self._n_running -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Wait for the calls that are under way, and let no thread but the main one begin another."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._n_running == 0, PATIENCE)

    def forget(self) -> None:
        """Begin anew in a process that was forked off: threads and their calls stayed with the parent."""
        CompiledCalls.__init__(self)


COMPILED_CALLS = CompiledCalls()
atexit.register(COMPILED_CALLS.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=COMPILED_CALLS.forget)
