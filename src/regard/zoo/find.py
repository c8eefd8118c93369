"""A model's path, or a bundled model's name, becomes a folder."""

from os import PathLike
from pathlib import Path

from regard.config import choose, unknown
from regard.zoo import HOME, ZOO, Bundled


def present(home: Path = HOME) -> dict[str, Bundled]:
    """Gives the bundled models that are there; a copy of the program may come without some, or all."""
    return {name: bundled for name, bundled in ZOO.items() if (home / name).is_dir()}


def find_model(model: str | PathLike[str], home: Path = HOME) -> Path:
    """Gives the folder that a user means: a path where there is one, else a bundled model of that name."""
    path = Path(model)
    if path.exists():
        return path
    names = list(present(home))
    if str(model) in names:
        return home / str(model)
    others = unknown(str(model), names, "model") if names else f"and no model {str(model)!r} comes with this copy"
    raise ValueError(f"{path}: there is no such model folder; {others}")


def named(name: str, home: Path = HOME) -> Path:
    """Gives the folder of a bundled model."""
    if not present(home):
        raise ValueError(f"no models come with this copy of regard, got {name!r}: regard train makes one")
    choose(present(home), name, "model")
    return home / name


def listed(home: Path = HOME) -> str:
    """Names the bundled models with their languages, for messages."""
    found = present(home).items()
    return ", ".join(f"{name} ({each.src_lang} → {each.tgt_lang})" for name, each in found)
