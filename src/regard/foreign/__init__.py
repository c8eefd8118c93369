"""Models of other programs, read as ours: where one is named as a model, a copy in our form takes its place.

Copies lie in the user's cache, one for each folder, made anew where a file of the folder has changed. `regard import`
writes one to stay. Nothing that reads other programs' files is imported until such a folder is named.
"""

import re
import shutil
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

from regard.checkpoint import CONFIG
from regard.checkpoint.arrays import LARGEST_JSON
from regard.data.files import read_whole
from regard.extras import needed_by
from regard.native.libraries import cache_folder

FORM = 1  # of copies; another number makes them anew
HUB = re.compile(r"hf:(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)")
WANTED = ("*.json", "*.safetensors", "*.spm", "*.model", "*.bin", "README.md")  # of a folder on a hub


def is_foreign(folder: Path) -> bool:
    """Tell whether a folder is one of Hugging Face's Transformers, by its config.json."""
    path = folder / CONFIG
    content = read_whole(path, LARGEST_JSON) if path.is_file() else b""
    return b'"model_type"' in content and b'"settings"' not in content


def is_hub_name(name: str) -> bool:
    """Tell whether a name is that of a model on the Hugging Face hub: hf:owner/name."""
    return HUB.fullmatch(name) is not None


def own_folder(folder: Path) -> Path:
    """Return a folder that is ours, or the copy in our form of one that is not."""
    if not is_foreign(folder):
        return folder
    try:
        home = cache_folder() / "imported"
        copy = home / _copy_name(folder)
        if not (copy / CONFIG).exists():
            incoming = import_module("regard.foreign.incoming")
            incoming.write_incoming(incoming.read_incoming(folder), copy, overwrite=True)
            _remove_older(copy)
    except OSError as error:
        way_out = "name another with XDG_CACHE_HOME, or write a model to stay by regard import"
        raise ValueError(f"{folder}: a copy of a model in our form needs a cache, got {error}: {way_out}") from error
    return copy


def _copy_name(folder: Path) -> str:
    """Name the copy of a folder: by the folder, where it lies, and the sizes and times of its files."""
    whole = folder.resolve()
    files = sorted((each.name, each.stat().st_size, each.stat().st_mtime_ns) for each in whole.iterdir())
    place, content = (blake2b(repr(each).encode(), digest_size=6).hexdigest() for each in (str(whole), (FORM, files)))
    return f"{whole.name}-{place}-{content}"


def _remove_older(copy: Path) -> None:
    """Remove the copies of what a folder held before."""
    kind = copy.name.rpartition("-")[0]
    for older in copy.parent.iterdir():
        if older.name.rpartition("-")[0] == kind and older != copy:
            shutil.rmtree(older, ignore_errors=True)


def fetch(name: str) -> Path:
    """Return the folder of a model on the hub, fetched where it is not here yet; raise ValueError where that fails."""
    found = HUB.fullmatch(name)
    if found is None:
        raise ValueError(f"a model on the hub is named hf:owner/name, got {name!r}")
    with needed_by(f"{name}: fetching from the Hugging Face hub"):
        hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(found["name"], allow_patterns=list(WANTED)))
    except Exception as error:  # of the network, of the hub, of the disk: each has many of its own
        what = str(error).strip().split("\n")[0]
        raise ValueError(
            f"{name} cannot be fetched ({what[:200]}): fetch its folder elsewhere, and name that"
        ) from error
