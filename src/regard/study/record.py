"""A study's result as plain values, ready to be written as JSON."""

import math
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


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
