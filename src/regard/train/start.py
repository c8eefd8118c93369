"""From what a user says to the settings of a run, and to a folder that may be written."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from regard.checkpoint import CONFIG, settings_table
from regard.config import Settings, merge, parse_override, parse_settings, preset
from regard.data.formats import read_blocks, read_pairs
from regard.data.normalise import guess_language
from regard.train.distributed import read_world
from regard.train.initialise import check_inherited, inherited_settings
from regard.train.run import back_up, choose_device, resolve_settings
from regard.train.trainer import read_run_settings


@dataclass(frozen=True)
class DataOptions:
    """The text a user named, and its languages if they were."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    src_lang: str | None
    tgt_lang: str | None


@dataclass(frozen=True)
class TrainOptions:
    """What a user says of the model and of how it learns; a model to begin with brings its own sizes and parts."""

    preset: str | None = None
    family: str | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    init: str | None = None
    corpora: Path | None = None  # where the files that the config names lie


def start_run(folder: Path, data: DataOptions, options: TrainOptions, resume: bool, overwrite: bool) -> Settings:
    """Gives the settings of a new run, or of the one to go on with; an existing run is not overwritten unless told.

    Of several processes the leader alone looks at the folder: it may be at work there before the others look. A team
    that torchrun started anew goes on with the run that it began.
    """
    world = read_world()
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: go on with the run, or replace it")
    if resume:
        return _resumed_settings(folder, data, options)
    made = parse_settings(Settings, _tables(data, options))
    check_inherited(made, options.init)
    resolve_settings(made, choose_device(made.train.device))  # a mistake is found before anything is put aside
    if world.is_main and not (world.restarts and _is_same_run(folder, made)):
        _claim_folder(folder, overwrite)
    return made


def _resumed_settings(folder: Path, data: DataOptions, options: TrainOptions) -> Settings:
    """Gives a run's settings with what a user says otherwise now; its text, pieces and model stay."""
    saved = read_run_settings(folder)
    tables = settings_table(saved)
    made = parse_settings(Settings, merge(tables, *_layers(options, data, tables)))
    for table in ("data", "text", "model", "train"):
        kept = ("init",) if table == "train" else asdict(getattr(saved, table))
        for name in kept:
            value, other = (asdict(getattr(each, table))[name] for each in (saved, made))
            if other != value:
                raise ValueError(
                    f"{folder}: a run that goes on keeps its {table}.{name}, {value!r}, got {other!r}: "
                    "leave it out, or begin another run"
                )
    return made


def _is_same_run(folder: Path, made: Settings) -> bool:
    """Tells whether the run in a folder is this one, begun before its processes were started anew."""
    if not (folder / CONFIG).exists():
        return not folder.exists()
    device = choose_device(made.train.device)
    return read_run_settings(folder) == resolve_settings(made, device)


def _claim_folder(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a run needs a folder, got a file of this name: name another with --out")
    taken = folder.is_dir() and any(folder.iterdir())
    if taken and not overwrite:
        raise ValueError(
            f"{folder}: there is something here already: --resume goes on with it, --overwrite replaces it"
        )
    if taken:
        back_up(folder)


def _data(data: DataOptions) -> dict[str, list[str]]:
    given = {"train": data.train, "valid": data.valid, "test": data.test}
    return {name: list(values) for name, values in given.items() if values}


def _tables(data: DataOptions, options: TrainOptions) -> dict[str, Any]:
    """Lays over each other: preset or the model to begin with, file, command line."""
    under = _base_tables(options)
    tables = merge(under, *_layers(options, data, under))
    if not tables["data"].get("train"):
        raise ValueError("there is no text to learn from: name it with --data")
    return merge(tables, {"data": _languages(data, tables["data"])})


def _base_tables(options: TrainOptions) -> dict[str, Any]:
    """Gives the tables that lie under all others."""
    init = options.init
    if init is None:
        return preset(options.preset or "small", options.family or "transformer")
    for option, value in (("--preset", options.preset), ("--family", options.family)):
        if value is not None:
            raise ValueError(f"--init {init} brings its own sizes and parts, got {option} {value}: leave one out")
    return inherited_settings(init)


def _layers(options: TrainOptions, data: DataOptions, base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Gives the tables of the file and of the command line."""
    file = (
        {}
        if options.config is None
        else resolve_paths(_read(options.config, base), options.config.parent, options.corpora)
    )
    init = {} if options.init is None else {"train": {"init": options.init}}
    return [file, init, {"data": _data(data)}, *(parse_override(text) for text in options.overrides)]


def resolve_paths(file: dict[str, Any], beside: Path, corpora: Path | None) -> dict[str, Any]:
    """Says where the texts that a file names lie: `./x` beside the file, others in the folder of corpora if given."""

    def place(path: str) -> str:
        if path.startswith("./"):
            return str(beside / path)
        return path if corpora is None or path == "-" else str(corpora / path)

    data = dict(file.get("data", {}))
    for name in ("train", "valid", "test", "exclude"):
        if isinstance(data.get(name), list):
            data[name] = [",".join(place(path.strip()) for path in source.split(",")) for source in data[name]]
    return {**file, "data": data} if "data" in file else file


def _languages(options: DataOptions, data: dict[str, Any]) -> dict[str, str]:
    """Gives the languages: those said, else those that the script of the first lines tells."""
    named = {
        "src_lang": options.src_lang or data.get("src_lang"),
        "tgt_lang": options.tgt_lang or data.get("tgt_lang"),
    }
    if data.get("form", "pairs") != "pairs":
        spoken = named["tgt_lang"] or named["src_lang"] or _guess_text_language(data["train"])
        return {"src_lang": spoken, "tgt_lang": spoken}
    if all(named.values()) or "-" in data["train"]:
        return {key: value for key, value in named.items() if value}
    names = named["src_lang"] or "src", named["tgt_lang"] or "tgt"
    turn = -1 if data.get("reverse") else 1
    first = list(islice(read_pairs(data["train"], *names[::turn]), 200))
    src, tgt = ([pair.src for pair in first], [pair.tgt for pair in first])[::turn]
    guessed = {"src_lang": guess_language(src) or "src", "tgt_lang": guess_language(tgt) or "tgt"}
    return {key: value or guessed[key] for key, value in named.items()}


def _guess_text_language(sources: list[str]) -> str:
    """Gives the language of a text, as far as its script tells."""
    if "-" in sources:
        return "text"
    first = next(read_blocks(sources[0]), "")[:5000].splitlines()
    return guess_language(first) or "text"


def _read(path: Path, under: Mapping[str, Any]) -> dict[str, Any]:
    """Reads a file of settings that will lie over others; what is wrong in it is said with its name."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        parse_settings(Settings, merge(under, table))
        return table
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
