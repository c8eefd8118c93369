"""From the options of a user to the settings of a run and a folder for it."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from regard.atomic import written_names
from regard.checkpoint import CONFIG, settings_table
from regard.config import ModelSettings, Settings, merge, parse_settings, preset
from regard.data.formats import read_blocks, read_pairs
from regard.data.normalise import guess_language
from regard.device import find_device
from regard.toml import parse_override
from regard.train.distributed import read_world
from regard.train.initialise import check_inherited, inherited_settings
from regard.train.run import HOLDER, LOCK, back_up, check_replaceable, resolve_settings
from regard.train.trainer import read_run_settings

_NO_SUBLAYERS = "a recurrent model has no sub-layers with residuals around them; leave it out"
# Settings that a family does not use, and why.
UNUSED = {
    "recurrent": {
        "n_heads": "its attention has one head; leave it out",
        "d_ff": "it has no feed-forward layers; leave it out",
        "activation": "it has no feed-forward layers; leave it out",
        "norm": _NO_SUBLAYERS,
        "norm_place": _NO_SUBLAYERS,
    },
    "decoder": {"n_encoder_layers": "it has a decoder alone; set n_decoder_layers"},
}


@dataclass(frozen=True)
class DataOptions:
    """The training text, and its languages if they are named."""

    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    src_lang: str | None
    tgt_lang: str | None


@dataclass(frozen=True)
class TrainOptions:
    """The model and how it is trained; with `init`, sizes and parts come from that model."""

    preset: str | None = None
    family: str | None = None
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    init: str | None = None
    corpora: Path | None = None  # folder of the files named in the config


def start_run(folder: Path, data: DataOptions, options: TrainOptions, resume: bool, overwrite: bool) -> Settings:
    """Return the settings of a new run, or of the one to resume; an existing run is replaced only with `overwrite`.

    Only the main process checks the folder: it may have begun to write there before the others get here. Processes
    restarted by torchrun continue their run.
    """
    world = read_world()
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: continue the run, or replace it")
    if resume:
        return _resumed_settings(folder, data, options)
    settings = parse_settings(Settings, _tables(data, options))
    check_inherited(settings, options.init)
    # Mistakes are found before the old run is moved.
    resolve_settings(settings, torch.device(find_device(settings.train.device)))
    if world.is_main and not (world.restarts and _is_same_run(folder, settings)):
        _claim_folder(folder, overwrite)
    return settings


def _resumed_settings(folder: Path, data: DataOptions, options: TrainOptions) -> Settings:
    """Return a run's settings with the changes of the user; its text, tokenizer and model stay."""
    saved = read_run_settings(folder)
    tables = settings_table(saved)
    settings = parse_settings(Settings, merge(tables, *_layers(options, data, tables)))
    for table in ("data", "text", "model", "train"):
        fixed = ("init",) if table == "train" else asdict(getattr(saved, table))
        for name in fixed:
            value, other = (asdict(getattr(each, table))[name] for each in (saved, settings))
            if other != value:
                raise ValueError(
                    f"{folder}: a resumed run keeps its {table}.{name}, {value!r}, got {other!r}: "
                    "leave it out, or start another run"
                )
    return settings


def _is_same_run(folder: Path, settings: Settings) -> bool:
    """Tell whether the run in a folder is this one, begun before torchrun restarted its processes."""
    if not (folder / CONFIG).exists():
        return not _contents(folder)
    device = torch.device(find_device(settings.train.device))
    return read_run_settings(folder) == resolve_settings(settings, device)


def _claim_folder(folder: Path, overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: a run needs a folder, got a file of this name: name another with --out")
    if not _contents(folder):
        return
    if not overwrite:
        raise ValueError(f"{folder}: the folder is not empty: --resume continues its run, --overwrite replaces it")
    check_replaceable(folder)
    back_up(folder)


def _contents(folder: Path) -> set[str]:
    return written_names(folder) - {LOCK, HOLDER}


def _data(data: DataOptions) -> dict[str, list[str]]:
    sources = {"train": data.train, "valid": data.valid, "test": data.test}
    return {name: list(values) for name, values in sources.items() if values}


def _tables(data: DataOptions, options: TrainOptions) -> dict[str, Any]:
    """Merge the tables of preset or initial model, config file, and command line."""
    base = _base_tables(options)
    layers = _layers(options, data, base)
    tables = merge(base, *layers)
    check_used(tables.get("model", {}).get("family", ModelSettings.family), merge(*layers).get("model", {}))
    if not tables["data"].get("train"):
        raise ValueError("there is no training text: name it with --data")
    return merge(tables, {"data": _languages(data, tables["data"])})


def check_used(family: str, given: Mapping[str, Any]) -> None:
    """Raise ValueError for a setting of the model that its family does not use."""
    unused = [name for name in given if name in UNUSED.get(family, {})]
    if unused:
        reason = UNUSED[family][unused[0]]
        raise ValueError(
            f"model.{unused[0]} has no meaning in the family {family!r}, got {given[unused[0]]!r}: {reason}"
        )


def _base_tables(options: TrainOptions) -> dict[str, Any]:
    """Return the tables of the preset, or of the initial model."""
    init = options.init
    if init is None:
        return preset(options.preset or "small", options.family or "transformer")
    for option, value in (("--preset", options.preset), ("--family", options.family)):
        if value is not None:
            raise ValueError(f"--init {init} brings its own sizes and parts, got {option} {value}: leave one out")
    return inherited_settings(init)


def _layers(options: TrainOptions, data: DataOptions, base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tables of the config file and of the command line."""
    file: dict[str, Any] = {}
    if options.config is not None:
        file = resolve_paths(_read(options.config, base), options.config.parent, options.corpora)
    init = {} if options.init is None else {"train": {"init": options.init}}
    return [file, init, {"data": _data(data)}, *(parse_override(text) for text in options.overrides)]


def resolve_paths(file: dict[str, Any], folder: Path, corpora: Path | None) -> dict[str, Any]:
    """Resolve the sources named in a config file: `./x` in the folder of that file, others in `corpora` if given."""

    def resolve(path: str) -> str:
        if path.startswith("./"):
            return str(folder / path)
        return path if corpora is None or path == "-" else str(corpora / path)

    data = dict(file.get("data", {}))
    for name in ("train", "valid", "test", "exclude"):
        if isinstance(data.get(name), list):
            data[name] = [",".join(resolve(path.strip()) for path in source.split(",")) for source in data[name]]
    return {**file, "data": data} if "data" in file else file


def _languages(options: DataOptions, data: dict[str, Any]) -> dict[str, str]:
    """Return the languages: as named, else guessed from the script of the first lines."""
    named = {
        "src_lang": options.src_lang or data.get("src_lang"),
        "tgt_lang": options.tgt_lang or data.get("tgt_lang"),
    }
    if data.get("form", "pairs") != "pairs":
        language = named["tgt_lang"] or named["src_lang"] or _guess_text_language(data["train"])
        return {"src_lang": language, "tgt_lang": language}
    if all(named.values()) or "-" in data["train"]:
        return {key: value for key, value in named.items() if value}
    names = named["src_lang"] or "src", named["tgt_lang"] or "tgt"
    order = -1 if data.get("reverse") else 1
    first = list(islice(read_pairs(data["train"], *names[::order]), 200))
    src, tgt = ([pair.src for pair in first], [pair.tgt for pair in first])[::order]
    guessed = {"src_lang": guess_language(src) or "src", "tgt_lang": guess_language(tgt) or "tgt"}
    return {key: value or guessed[key] for key, value in named.items()}


def _guess_text_language(sources: list[str]) -> str:
    if "-" in sources:
        return "text"
    first = next(read_blocks(sources[0]), "")[:5000].splitlines()
    return guess_language(first) or "text"


def _read(path: Path, base: Mapping[str, Any]) -> dict[str, Any]:
    """Read a config file that is merged over other tables; errors name the file."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        parse_settings(Settings, merge(base, table))
        return table
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
