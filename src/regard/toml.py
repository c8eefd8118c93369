"""Settings as people write them, in TOML: a file, or one setting on the command line.

A file of its own, since a translation needs no TOML, and importing what reads it takes 3 ms.
"""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from regard.config import parse_settings

T = TypeVar("T")


def parse_override(text: str) -> dict[str, Any]:
    """Parse one `a.b=c` of the command line; the value is TOML, or else a plain string."""
    path, sign, value = text.partition("=")
    if not sign or not path.strip():
        raise ValueError(f"a setting must look like train.lr=3e-4, got {text!r}")
    parsed: Any
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for key in reversed(path.strip().split(".")):
        parsed = {key: parsed}
    return parsed


def read_toml(cls: type[T], path: Path) -> T:
    """Read settings from a TOML file that lists only what differs from the defaults."""
    try:
        return parse_settings(cls, tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
