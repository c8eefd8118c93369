"""From what a user says to the settings of a run, and to a folder that may be written."""

import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.checkpoint import CONFIG, settings_table
from regard.config import Settings, merged, override, preset, settings
from regard.text.corpus import read_pairs
from regard.text.language import guess_language
from regard.train.distributed import place_in_team
from regard.train.run import choose_device, resolve
from regard.train.train import settings_of


@dataclass(frozen=True)
class Sources:
    """The text a user named, and its languages if they were."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    src_lang: str | None
    tgt_lang: str | None


def start_run(
    folder: Path, sources: Sources, said: tuple[str, str, Path | None, tuple[str, ...]], resume: bool, overwrite: bool
) -> Settings:
    """Gives the settings of a new run, or of the one to go on with; an existing run is not overwritten unless told.

    Of several processes the leader alone looks at the folder: it may be at work there before the others look. A team
    that torchrun started anew goes on with the run that it began.
    """
    team = place_in_team()
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: go on with the run, or replace it")
    if resume:
        return _changed(folder, sources, said)
    made = settings(Settings, _tables(sources, *said))
    if team.leads and not (team.restarts and _began(folder, made)):
        _clear(folder, overwrite)
    return made


def _changed(folder: Path, sources: Sources, said: tuple[str, str, Path | None, tuple[str, ...]]) -> Settings:
    """Gives a run's settings with what a user says otherwise now; its text, pieces and model stay."""
    saved = settings_of(folder)
    _, _, config, sets = said
    tables = settings_table(saved)
    file = {} if config is None else _read(config, tables)
    made = settings(Settings, merged(tables, file, *(override(text) for text in sets), {"data": _data(sources)}))
    for table in ("data", "text", "model"):
        for name, value in asdict(getattr(saved, table)).items():
            other = asdict(getattr(made, table))[name]
            if other != value:
                raise ValueError(
                    f"{folder}: a run that goes on keeps its {table}.{name}, {value!r}, got {other!r}: "
                    "leave it out, or begin another run"
                )
    return made


def _began(folder: Path, made: Settings) -> bool:
    """Tells whether the run in a folder is this one, begun before its processes were started anew."""
    if not (folder / CONFIG).exists():
        return not folder.exists()
    device = choose_device(made.train.device)
    return settings_of(folder) == resolve(made, device)


def _clear(folder: Path, overwrite: bool) -> None:
    taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    if taken and not overwrite:
        raise ValueError(
            f"{folder}: there is something here already: --resume goes on with it, --overwrite replaces it"
        )
    if taken and folder.is_dir():
        shutil.rmtree(folder)
    elif taken:
        folder.unlink()


def _data(sources: Sources) -> dict[str, list[str]]:
    given = {"train": sources.train, "valid": sources.valid, "test": sources.test}
    return {name: list(values) for name, values in given.items() if values}


def _tables(sources: Sources, size: str, family: str, config: Path | None, sets: tuple[str, ...]) -> dict[str, Any]:
    """Lays over each other: preset, file, command line."""
    file = {} if config is None else _read(config, preset(size, family))
    tables = merged(preset(size, family), file, {"data": _data(sources)}, *(override(text) for text in sets))
    if not tables["data"].get("train"):
        raise ValueError("there is no text to learn from: name it with --data")
    return merged(tables, {"data": _languages(sources, tables["data"])})


def _languages(sources: Sources, data: dict[str, Any]) -> dict[str, str]:
    """Gives the languages: those said, else those that the script of the first lines tells."""
    named = {
        "src_lang": sources.src_lang or data.get("src_lang"),
        "tgt_lang": sources.tgt_lang or data.get("tgt_lang"),
    }
    if all(named.values()) or "-" in data["train"]:
        return {key: value for key, value in named.items() if value}
    first = list(islice(read_pairs(data["train"], named["src_lang"] or "src", named["tgt_lang"] or "tgt"), 200))
    guessed = {
        "src_lang": guess_language([pair.src for pair in first]) or "src",
        "tgt_lang": guess_language([pair.tgt for pair in first]) or "tgt",
    }
    return {key: value or guessed[key] for key, value in named.items()}


def _read(path: Path, under: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a file of settings that will lie over others; what is wrong in it is said with its name."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        settings(Settings, merged(under, table))
        return table
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
