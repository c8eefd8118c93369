"""An old run that is about to be replaced, kept inside its folder until the new one's text is prepared."""

import shutil
from pathlib import Path

ASIDE = ".replaced"  # inside the folder, so that no neighbour is touched and a mounted folder will do


def put_aside(folder: Path) -> None:
    """Moves all that is in a folder out of a new run's way; of a replacement that was killed the first run is kept."""
    aside = folder / ASIDE
    if aside.exists():
        return clear(folder)
    aside.mkdir()
    for path in own(folder):
        path.rename(aside / path.name)


def put_back(folder: Path) -> None:
    """Makes a folder what it was before `put_aside`, or empty."""
    aside = folder / ASIDE
    clear(folder)
    if aside.is_dir():
        for path in list(aside.iterdir()):
            path.rename(folder / path.name)
        aside.rmdir()


def let_go(folder: Path) -> None:
    """Removes the old run."""
    shutil.rmtree(folder / ASIDE, ignore_errors=True)


def own(folder: Path) -> list[Path]:
    """Lists what a folder holds of its new run."""
    return [path for path in folder.iterdir() if path.name != ASIDE] if folder.is_dir() else []


def clear(folder: Path) -> None:
    """Removes what a folder holds of its new run."""
    for path in own(folder):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
