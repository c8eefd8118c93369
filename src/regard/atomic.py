"""Write a file or a folder completely or not at all, with checksums; remove nothing that was not written here."""

import errno
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Names that nobody else gives: a draft, and an old folder while a new one takes its name.
DRAFT = re.compile(r"\.regard-[0-9a-f]{16}\.partial")
BACKUP = re.compile(r"\.(?P<name>.+)\.regard-[0-9a-f]{16}\.old")
FULL = {errno.ENOSPC, errno.EDQUOT}  # of a disk, and of a user's share of it
WRITING = {*FULL, errno.EFBIG, errno.EIO}  # errors of a write, which do not say in which file


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path to write to, and move it to `path` at the end unless an exception is raised.

    A device or a pipe is written to as it is: a file must not take its place.
    """
    path = path.resolve()  # of a link, what it points to is replaced
    draft = path if path.exists() and not path.is_file() else _draft(path)
    try:
        yield draft
        if draft != path:
            os.replace(draft, path)
    except OSError as error:
        _raise_named(error, draft, path)
        raise
    finally:
        if draft != path:
            draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, is_ours: Callable[[str], bool] = lambda name: True) -> Iterator[Path]:
    """Yield an empty folder to fill, and move it to `path` at the end unless an exception is raised.

    An old folder is renamed, not deleted, before the new one takes its name: if the process is killed in between,
    `latest` still finds it. Of the old folder only what `is_ours` by its name is removed; the rest moves on.
    """
    path = path.resolve()  # of a link, what it points to is replaced
    draft = _draft(path)
    with ensure_folder(path.parent):
        try:
            draft.mkdir()
            yield draft
            sync_files(draft)
            if path.exists():
                os.replace(path, path.with_name(f".{path.name}.regard-{os.urandom(8).hex()}.old"))
            os.replace(draft, path)
            for backup in _backups(path):
                move_theirs(backup, path, is_ours)
                remove(backup, is_ours)
        except OSError as error:
            _raise_named(error, draft, path)
            raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def latest(path: Path) -> Path:
    """Return a folder written by `atomic_folder`, or its backup if the process was killed before the last rename.

    Nothing is moved: a reader may lack the permission, and a writer may be about to do it.
    """
    return path if path.exists() else next(iter(_backups(path.resolve())), path)


def written_names(folder: Path) -> set[str]:
    """Return the names in a folder, with those of which only a backup is left, and without drafts."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    backups = {found["name"] for name in names if (found := BACKUP.fullmatch(name))}
    return backups | {name for name in names if not (DRAFT.fullmatch(name) or BACKUP.fullmatch(name))}


def remove_drafts(folder: Path) -> None:
    """Remove what killed processes left in a folder in which nobody else is writing."""
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if DRAFT.fullmatch(path.name):
            remove(path)


def remove(path: Path, is_ours: Callable[[str], bool] | None = None) -> None:
    """Remove a file or a folder as far as that is possible; of a folder all, or what `is_ours` by its name."""
    if path.is_symlink() or not path.is_dir():
        with suppress(OSError):
            path.unlink()
    elif is_ours is None:
        shutil.rmtree(path, ignore_errors=True)
    else:
        for each in [each for each in path.iterdir() if is_ours(each.name)]:
            remove(each)
        with suppress(OSError):  # a folder in which others have something stays
            path.rmdir()


def move_theirs(folder: Path, target: Path, is_ours: Callable[[str], bool]) -> None:
    """Move what others have put into a folder to another one; what has a taken name stays."""
    for path in list(folder.iterdir()):
        if not is_ours(path.name) and not (target / path.name).exists():
            target.mkdir(exist_ok=True)
            path.rename(target / path.name)


CHECKSUMS = "checksums.json"


def write_checksums(folder: Path) -> None:
    """Write down the CRC-32 of each file that a folder has now."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    sums = {name: checksum(folder / name) for name in names if name != CHECKSUMS}
    (folder / CHECKSUMS).write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")


def verify_checksums(folder: Path) -> None:
    """Raise ValueError naming a file that is not what was written; a folder without checksums is not verified.

    40 MB take 10 ms of processor time.
    """
    path = folder / CHECKSUMS
    if not path.is_file():
        return
    try:
        sums = json.loads(path.read_text(encoding="utf-8"))
        wanted = {str(name): str(value) for name, value in sums.items()}
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}: this is not a complete file of checksums ({error}): copy the folder again"
        ) from error
    for name, value in wanted.items():
        found = checksum(folder / name) if (folder / name).is_file() else "no such file"
        if found != value:
            raise ValueError(
                f"{folder / name}: this file is damaged, its checksum must be {value}, got {found}: copy the folder "
                f"again, or delete {CHECKSUMS} if the change was meant"
            )


def checksum(path: Path) -> str:
    """Return the CRC-32 of a file."""
    crc, block = 0, memoryview(bytearray(1 << 18))  # which a processor's cache holds
    with path.open("rb", buffering=0) as file:
        while n := file.readinto(block):
            crc = zlib.crc32(block[:n], crc)
    return f"{crc:08x}"


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


def _draft(path: Path) -> Path:
    return path.with_name(f".regard-{os.urandom(8).hex()}.partial")


def _backups(path: Path) -> list[Path]:
    """Return the backups of a folder, the newest first; more than one is left only if several processes were killed."""
    try:
        names = os.listdir(path.parent)
    except OSError:
        return []
    own = [name for name in names if (found := BACKUP.fullmatch(name)) and found["name"] == path.name]
    return sorted((path.with_name(name) for name in own), key=lambda each: -each.stat().st_mtime)


def _raise_named(error: OSError, draft: Path, path: Path) -> None:
    """Raise an error of writing a draft as one of the file or folder that was to be written."""
    is_draft = error.filename is not None and os.fspath(error.filename).startswith(str(draft))
    unnamed = error.filename is None and error.errno in WRITING
    if is_draft or unnamed:
        raise OSError(error.errno, error.strerror, str(path)) from error
