"""Write a file or a folder completely or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, and move it to `path` at the end unless an exception is raised."""
    draft = path.with_name(path.name + ".partial")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, and move it to `path` at the end unless an exception is raised.

    An old folder is renamed, not deleted, before the new one takes its name: if the process is killed in between,
    `latest` still finds it.
    """
    draft, backup = path.with_name(path.name + ".partial"), backup_path(path)
    shutil.rmtree(draft, ignore_errors=True)  # left by a process that was killed
    with ensure_folder(path.parent):
        try:
            draft.mkdir()
            yield draft
            sync_files(draft)
            if path.exists():
                shutil.rmtree(backup, ignore_errors=True)
                os.replace(path, backup)
            os.replace(draft, path)
            shutil.rmtree(backup, ignore_errors=True)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def backup_path(path: Path) -> Path:
    """Return where an old folder is kept while a new one takes its name."""
    return path.with_name(path.name + ".old")


def latest(path: Path) -> Path:
    """Return a folder written by `atomic_folder`, or its backup if the process was killed before the last rename.

    Nothing is moved: a reader may lack the permission, and a writer may be about to do it.
    """
    backup = backup_path(path)
    return backup if not path.exists() and backup.exists() else path


def sync_files(folder: Path) -> None:
    """Wait until the files of a folder are on the disk, so that no name appears before its contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


@contextmanager
def ensure_folder(folder: Path) -> Iterator[None]:
    """Create a folder and its parents; if an exception is raised inside, remove those that were created."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for each in created:
            with suppress(OSError):  # someone else has put something there
                each.rmdir()
        raise
