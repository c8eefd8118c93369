"""One suite as a process of its own, whose words are passed on as they come."""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from regard.study.suites import Suite

LAST = 15  # lines that tell why a suite failed


@dataclass(frozen=True)
class Outcome:
    """How a suite ended."""

    suite: str
    seconds: float
    code: int
    last: list[str]  # what it said in the end


def run_suite(suite: Suite, scripts: Path, folder: Path, quick: bool, tell: Callable[[str], None]) -> Outcome:
    """Runs a suite to its end; the line of JSON, which it keeps in the folder, is not passed on."""
    command = [sys.executable, "-u", str(scripts / suite.script), *suite.arguments(quick, folder.absolute())]
    last: deque[str] = deque(maxlen=LAST)
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    ) as process:
        assert process.stdout is not None, "it was asked for"
        try:
            for line in (line.rstrip("\n") for line in process.stdout if not line.startswith('{"')):
                last.append(line)
                tell(line)
        except BaseException:  # whoever asked has gone, and nobody would read what it measures
            process.kill()
            raise
    return Outcome(suite.name, time.perf_counter() - began, process.returncode, list(last))
