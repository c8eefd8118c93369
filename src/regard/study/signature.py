"""The signature that every published number carries: all that could move it."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import regard


def signature(device: str, **more: Any) -> dict[str, Any]:
    """Gathers versions, machine and date; what belongs to one number alone, such as its seed, is given."""
    return {
        "regard": regard.__version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": torch.cuda.get_device_name() if device.startswith("cuda") else cpu_name(),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).date().isoformat(),
        **more,
    }


def cpu_name() -> str:
    """Gives the processor's name."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Gives the version of these sources, where they lie in a repository of their own."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
