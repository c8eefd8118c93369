"""Models of a server besides its translators: named by their folders, and loaded when first asked."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from regard.checkpoint import CONFIG, model_folder
from regard.config import choose
from regard.serve.errors import BrokenError

if TYPE_CHECKING:
    from regard.checkpoint.reading import QuestionReader
    from regard.decode.writer import Writer

LOG = logging.getLogger("regard.serve")
T = TypeVar("T")


class Library(Generic[T]):
    """Models of one kind; any thread may ask for one."""

    def __init__(self, kind: str, folders: Sequence[Path], load: Callable[[Path], T]):
        self.kind = kind
        self.folders = {name_of(folder): folder for folder in folders}
        self._load = load
        self._lock = Lock()
        self._open: dict[str, T] = {}

    def open(self, name: str | None) -> tuple[str, T]:
        """Gives a model with its name, the first where none is named, loaded now if it was not."""
        if not self.folders:
            raise ValueError(f"this server has no {self.kind}: start it with --{self.kind} FOLDER")
        name = next(iter(self.folders)) if name is None else name
        folder = choose(self.folders, name, self.kind)
        with self._lock:
            if name not in self._open:
                try:
                    self._open[name] = self._load(folder)
                except Exception as error:
                    LOG.exception("%s %s could not be loaded", self.kind, name)
                    raise BrokenError(
                        f"the {self.kind} {name!r} could not be loaded; the server's log says why"
                    ) from error
            return name, self._open[name]


def name_of(folder: Path) -> str:
    """Gives a run's name: the last part of its path that says something."""
    return next((part for part in reversed(folder.resolve().parts) if part not in {"model", "/"}), "model")


def check_folders(kind: str, folders: Sequence[Path], made_by: str) -> tuple[Path, ...]:
    """Refuses folders that hold no model, and two of one name."""
    for folder in folders:
        if not (model_folder(folder) / CONFIG).is_file():
            raise ValueError(f"{folder} holds no {kind}: name a folder that {made_by} made")
    names = [name_of(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"a {kind} is called by its folder's name, and these must differ, got {', '.join(names)}")
    return tuple(folders)


def load_reader(folder: Path) -> "QuestionReader":
    """Loads a reader of questions."""
    from regard.checkpoint.reading import load_reader as load  # which servers without one need not

    return load(folder)


def load_writer(folder: Path) -> "Writer":
    """Loads a model that writes; raises ValueError for another."""
    from regard.decode.load import load
    from regard.decode.writer import Writer

    found = load(folder)
    if not isinstance(found, Writer):
        raise ValueError(f"{folder}: a writer must be a decoder, got a translator: name it with --model")
    return found
