"""Dataclasses become JSON."""

import json
from dataclasses import fields
from typing import Any


def to_json(value: Any) -> str:
    """Writes a dataclass, or a list of them; numbers that JSON lacks are our mistake."""
    return json.dumps(value, default=_shallow, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}
