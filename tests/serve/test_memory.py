"""Memory that a server has freed goes back to the system."""

import subprocess
import sys
import threading

import pytest

from regard.serve import memory
from tests.serve.server import running

pytestmark = pytest.mark.skipif(memory._glibc() is None, reason="needs glibc")

# Blocks too small for a mapping of their own, each second one freed: no heap ends with free memory.
GAPS = """
import re
from pathlib import Path
from regard.serve.memory import release_free_memory

def resident():
    return int(re.findall(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[0]) // 1024

before = resident()
blocks = [bytearray(60_000) for _ in range(2_000)]
del blocks[::2]
full = resident() - before
release_free_memory()
print(full, resident() - before)
"""
HEAPS = """
import ctypes, re, sys, tempfile
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from regard.serve.memory import limit_arenas

limit_arenas()
libc, together = ctypes.CDLL(None), Barrier(6)
libc.fdopen.restype = ctypes.c_void_p
with ThreadPoolExecutor(6) as pool:
    list(pool.map(lambda _: (bytearray(60_000), together.wait()), range(6)))
with tempfile.TemporaryFile("w+") as file:
    stream = ctypes.c_void_p(libc.fdopen(file.fileno(), b"w"))
    libc.malloc_info(0, stream)
    libc.fflush(stream)
    file.seek(0)
    print(len(re.findall("<heap nr", file.read())))
"""


def printed(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return [int(each) for each in done.stdout.split()]


def test_gaps_between_blocks_are_returned():
    full, left = printed(GAPS)
    assert full > 90 and left < 0.7 * full


def test_threads_share_a_few_heaps():
    assert printed(HEAPS)[0] <= memory.MAX_ARENAS
    assert printed(HEAPS.replace("\nlimit_arenas()\n", "\n"))[0] > memory.MAX_ARENAS, "or nothing was limited"


def test_a_server_returns_memory_while_it_runs(models, monkeypatch):
    trimmed, trimmer = threading.Event(), memory.MemoryTrimmer(0.01)
    monkeypatch.setattr(memory, "release_free_memory", trimmed.set)
    monkeypatch.setattr("regard.serve.state.MemoryTrimmer", lambda: trimmer)
    with running(models):
        assert trimmed.wait(20)
    assert not trimmer._thread.is_alive()
