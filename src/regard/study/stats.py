"""Mean and spread, t-test, signature, JSON."""

import math
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import regard


@dataclass(frozen=True)
class Spread:
    """The mean of some measurements, and their standard deviation; 0 where there is one alone."""

    mean: float
    spread: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.spread:.3f}".replace("-", "−")


def spread(values: Float[Tensor, " n"] | Iterable[float]) -> Spread:
    """Gathers repeats of one measurement."""
    numbers = torch.as_tensor(values if isinstance(values, Tensor) else list(values), dtype=torch.float64)
    if numbers.numel() == 0:
        raise ValueError("a mean needs one measurement or more, got 0")
    deviation = float(numbers.std()) if numbers.numel() > 1 else 0.0
    return Spread(float(numbers.mean()), deviation, numbers.numel())


# Student's t, two-sided at 5 %, for 1 … 10 degrees of freedom; more are judged as 10, a little too strictly.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def beyond(one: Spread, other: Spread) -> bool | None:
    """Tells whether two means differ by Welch's t-test at 5 %; None where either has one value alone.

    Degrees of freedom are rounded down. Every comparison is by itself: one of twenty that are nothing is a false alarm.
    """
    if min(one.n, other.n) < 2:
        return None
    a, b = one.spread**2 / one.n, other.spread**2 / other.n
    if a + b == 0.0:
        return one.mean != other.mean
    freedom = (a + b) ** 2 / (a**2 / (one.n - 1) + b**2 / (other.n - 1))
    return abs(one.mean - other.mean) > T[min(int(freedom), len(T)) - 1] * math.sqrt(a + b)


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


def plain(value: Any) -> Any:
    """Turns dataclasses, tensors and tuples into dicts, lists and numbers; numbers that JSON lacks become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
