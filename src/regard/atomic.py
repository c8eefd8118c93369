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
    """Gives an empty folder to fill; in the end it takes the place of `path`, unless something went wrong.

    An old folder is moved aside, not deleted, before the new one takes its name: a process that is killed in between
    leaves it there, and `standing` finds it.
    """
    draft, aside = path.with_name(path.name + ".partial"), set_aside(path)
    shutil.rmtree(draft, ignore_errors=True)  # of a run that was killed
    with made_folder(path.parent):
        try:
            draft.mkdir()
            yield draft
            flush(draft)
            if path.exists():
                shutil.rmtree(aside, ignore_errors=True)
                os.replace(path, aside)
            os.replace(draft, path)
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Names the place of an old folder while a new one takes its name."""
    return path.with_name(path.name + ".old")


def standing(path: Path) -> Path:
    """Gives a folder that `whole_folder` wrote, or the old one where a process was killed before the new had its name.

    Nothing is moved: a reader may have no right to, and the writer may be about to.
    """
    aside = set_aside(path)
    return aside if not path.exists() and aside.exists() else path


def flush(folder: Path) -> None:
    """Waits until the files in a folder are on the disk, so that no name is there before its contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


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
