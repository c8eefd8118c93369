"""What prepared text was made from, in a form that changes when any of it does."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from regard.config import DataSettings, TextSettings
from regard.text.corpus import files_of
from regard.text.tokenizer import Tokenizer

FORMAT = 2  # of the prepared files; a program that writes them otherwise counts on
END = 1 << 16  # bytes at either end of a file that are looked at


def fingerprint(data: DataSettings, text: TextSettings, seed: int, tokenizer: Tokenizer | None) -> str:
    """Names all that the prepared text depends on, as JSON: settings, seed, sources and a given tokenizer."""
    given = tokenizer.models if tokenizer else ()
    parts = {
        "format": FORMAT,
        "data": asdict(data),
        "text": {name: value for name, value in asdict(text).items() if name != "variants" or text.sampling > 0},
        "seed": seed,
        "tokenizer": [blake2b(model, digest_size=16).hexdigest() for model in given],
        "files": [_file(path) for path in _files((*data.train, *data.valid, *data.test, *data.exclude))],
    }
    return json.dumps(parts, ensure_ascii=False, indent=1)


def _files(sources: Sequence[str]) -> list[str]:
    return [path for source in sources for path in files_of(source)]


def _file(path: str) -> dict[str, Any]:
    """Looks at size, time and both ends: reading all of a large file would take as long as preparing it."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        ends = blake2b(file.read(END), digest_size=16)
        file.seek(max(0, found.st_size - END))
        ends.update(file.read(END))
    return {"path": path, "size": found.st_size, "mtime_ns": found.st_mtime_ns, "ends": ends.hexdigest()}
