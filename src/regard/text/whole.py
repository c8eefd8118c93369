"""Files and folders that are there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a path to write to; what is there in the end takes the place of `path`, unless something went wrong."""
    draft = path.with_name(path.name + ".partial")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Gives an empty folder to fill; in the end it takes the place of `path`, unless something went wrong."""
    draft = path.with_name(path.name + ".partial")
    shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
    with made_folder(path.parent):
        try:
            draft.mkdir()
            yield draft
            shutil.rmtree(path, ignore_errors=True)
            os.replace(draft, path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Makes a folder and those above it; if something goes wrong inside, those that were not there vanish again."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in made:
            with suppress(OSError):  # there is something in it that is not ours
                each.rmdir()
        raise
