"""Means over repeats, a t-test, and the signature of a measurement."""

import math
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard import __version__


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
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


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
    return abs(one.mean - other.mean) > T[min(int(freedom), len(T)) - 1] * math.sqrt(a + b)


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
