"""The core works without PyTorch: tests/core runs where it cannot be imported, and a translation does not import it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CORE = sorted(path.name for path in (TESTS / "core").glob("test_*.py"))
# Tests of rooms that compute nothing with PyTorch.
LIGHT_ROOMS = ("data", "test_atomic.py", "test_config.py")
HEAVY = {"torch", "scipy", "matplotlib", "pandas", "transformers", "sacrebleu", "triton", "sklearn", "regard.train"}


def run_without_pytorch(*paths):
    """Runs some tests in a process where the extras are hidden."""
    options = ["-p", "tests.no_torch", "-p", "no:cacheprovider", "-q"]
    command = [sys.executable, "-m", "pytest", *options, *(str(TESTS / path) for path in paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=TESTS.parent)


@pytest.mark.parametrize("name", CORE)
def test_the_core_works_without_pytorch(name):
    done = run_without_pytorch(f"core/{name}")
    assert done.returncode == 0, done.stdout[-5000:]
    summary = done.stdout.strip().splitlines()[-1]
    assert "passed" in summary and "skipped" not in summary, summary


@pytest.mark.slow
def test_the_rooms_of_the_core_work_without_pytorch():
    done = run_without_pytorch(*LIGHT_ROOMS)
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.mark.parametrize("options", [[], ["--precision", "int8", "--beam", "1"], ["--set", "method=sample"]])
def test_a_translation_imports_nothing_heavy(options):
    command = [sys.executable, "-X", "importtime", "-m", "regard", "translate", *options, "我喜欢音乐。"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert done.stdout.strip() and "regard.pipeline" in imported
    assert not {name for name in imported if name.split(".")[0] in HEAVY or name in HEAVY}
