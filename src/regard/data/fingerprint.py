"""What a dataset was prepared from: settings, seed, tokenizer and files, and what of it has changed."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from regard.config import DataSettings, TextSettings
from regard.data.dataset import FINGERPRINT
from regard.data.formats import split_source
from regard.data.tokenizer import Tokenizer

FORMAT = 2  # version of the prepared files
END = 1 << 16  # bytes hashed at either end of a file


def fingerprint(
    data: DataSettings,
    text: TextSettings,
    seed: int,
    tokenizer: Tokenizer | None,
    earlier: Mapping[str, Any] | None = None,
) -> str:
    """Return all that a dataset depends on, as JSON: settings, seed, sources and a given tokenizer.

    Files that look as they did in an earlier fingerprint are not read again.
    """
    models = tokenizer.models if tokenizer else ()
    known = {each["path"]: each for each in (earlier or {}).get("files", ())}
    paths = _files((*data.train, *data.valid, *data.test, *data.exclude))
    parts = {
        "format": FORMAT,
        "data": asdict(data),
        "text": {name: value for name, value in asdict(text).items() if name != "variants" or text.sampling > 0},
        "seed": seed,
        "tokenizer": [blake2b(model, digest_size=16).hexdigest() for model in models],
        "files": [_file_identity(path, known.get(path, {})) for path in paths],
    }
    return json.dumps(parts, ensure_ascii=False, indent=1)


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in which settings and files two fingerprints differ; a file with the same contents is the same file."""
    found = [key for key in ("format", "seed", "tokenizer") if earlier.get(key) != now[key]]
    for table, settings in (("data", DataSettings()), ("text", TextSettings())):
        # A setting that an earlier version did not have was at its default.
        defaults = json.loads(json.dumps(asdict(settings)))
        old, new = defaults | earlier.get(table, {}), defaults | now[table]
        found += [f"{table}.{key}" for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    old, new = ({each["path"]: each for each in mark.get("files", ())} for mark in (earlier, now))
    for path in [*old, *(path for path in new if path not in old)]:
        if path not in new or path not in old:
            found.append(f"{path} is {'new' if path in new else 'gone'}")
        elif not _is_same_file(old[path], new[path]):
            found.append(f"{path} had {old[path]['size']:,} bytes and has {new[path]['size']:,}, with other contents")
    return found


def _is_same_file(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    keys = ("size", "sha256") if "sha256" in old else ("size", "mtime_ns", "ends")
    return all(old.get(key) == new[key] for key in keys)


def _files(sources: Sequence[str]) -> list[str]:
    return [path for source in sources for path in split_source(source)]


def _file_identity(path: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return size, time, a hash of both ends, and one of all: that known if the others are as they were."""
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        ends = blake2b(file.read(END), digest_size=16)
        file.seek(max(0, stat.st_size - END))
        ends.update(file.read(END))
        found = {"path": path, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ends": ends.hexdigest()}
        if "sha256" in known and found.items() <= known.items():
            return dict(known)
        file.seek(0)
        return {**found, "sha256": file_digest(file, "sha256").hexdigest()}  # 0.6 s for a GB


def read_fingerprint(folder: Path) -> dict[str, Any] | None:
    """Read the fingerprint of a dataset, if there is one."""
    try:
        read = json.loads((folder / FINGERPRINT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None
