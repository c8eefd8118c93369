"""Model registry: translators, question readers and generators, loaded when first used."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from regard.checkpoint import CONFIG, SCORES, model_folder, read_json, read_settings
from regard.config import DataSettings, Settings, choose
from regard.data.normalise import language_code
from regard.extras import MissingExtraError
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.serve import InternalError
from regard.serve.schema_api import Model, ModelScores
from regard.zoo import FAMILIES, HOME, find_model, present, script_language

LOG = logging.getLogger("regard.serve")
T = TypeVar("T")


class LazyModels(Generic[T]):
    """Models of one kind by name, each loaded when it is first opened; thread-safe."""

    def __init__(self, kind: str, folders: Mapping[str, Path], load: Callable[[Path], T]):
        self.kind = kind
        self.folders = folders
        self._load = load
        self._locks = {name: Lock() for name in folders}
        self._loaded: dict[str, T] = {}

    def is_loaded(self, name: str) -> bool:
        """Return whether a model is in memory."""
        return name in self._loaded

    def open(self, name: str) -> T:
        """Return a model, loaded now if it was not."""
        folder = choose(self.folders, name, self.kind)
        with self._locks[name]:
            if name not in self._loaded:
                try:
                    self._loaded[name] = self._load(folder)
                except MissingExtraError:
                    raise
                except Exception as error:
                    LOG.exception("could not load the %s %s", self.kind, name)
                    raise InternalError(f"could not load the {self.kind} {name!r}; see the server's log") from error
            return self._loaded[name]

    def open_or_first(self, name: str | None) -> tuple[str, T]:
        """Return a model with its name, the first one if no name is given."""
        if not self.folders:
            raise ValueError(f"this server has no {self.kind}: start it with --{self.kind} FOLDER")
        name = next(iter(self.folders)) if name is None else name
        return name, self.open(name)


UNNAMED = {DataSettings.src_lang, DataSettings.tgt_lang}  # what a run stores for a language that nobody named


@dataclass(frozen=True, eq=False)
class ModelEntry:
    """A translation model in its folder, with its settings and scores; `own` if the user named it."""

    folder: Path
    settings: Settings
    scores: ModelScores
    own: bool

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return language_code(self.settings.data.src_lang), language_code(self.settings.data.tgt_lang)

    def fits(self, source: str | None, target: str | None) -> bool:
        """Tell whether the model may translate between two languages; one that it does not name may be any."""
        pairs = zip((source, target), self.languages, strict=True)
        return all(want is None or has in {language_code(want), *UNNAMED} for want, has in pairs)


class ModelRegistry:
    """The translation models of a server: the user's own, then the bundled ones."""

    def __init__(self, own: Sequence[str] = (), precision: str = "float32", device: str = "cpu", home: Path = HOME):
        self.device = device
        self.entries: dict[str, ModelEntry] = {}
        for folder in [find_model(each, home) for each in own]:
            self._add(folder_name(folder), folder, own=True)
        for name in present(home):
            if home / name not in {entry.folder for entry in self.entries.values()}:
                self._add(name, home / name, own=False)
        folders = {name: entry.folder for name, entry in self.entries.items()}
        self._models = LazyModels("model", folders, lambda folder: load_translator(folder, precision, device))

    def _add(self, name: str, folder: Path, own: bool) -> None:
        inside = model_folder(folder)
        settings = read_settings(inside / CONFIG)
        if settings.model.family not in FAMILIES:
            raise ValueError(f"{folder}: --model must be a translation model, got a {settings.model.family}")
        names = (name, *(f"{name}-{n}" for n in range(2, len(self.entries) + 3)))
        unused = next(each for each in names if each not in self.entries)
        self.entries[unused] = ModelEntry(folder, settings, _read_scores(inside), own)

    def open(self, name: str) -> Translator:
        """Return a model, loaded now if it was not."""
        return self._models.open(name)

    def describe(self) -> list[Model]:
        """Return the descriptions of all models."""
        return [_describe(name, entry, self._models.is_loaded(name)) for name, entry in self.entries.items()]

    def pick(self, source: str, target: str | None, text: str) -> str:
        """Return the name of the preferred model for two languages; `auto` detects the source by the text's script."""
        suitable = self._by_script(text, target) if source == "auto" else self._from_to(source, target)
        if not suitable:
            pair = f"from {source}{f' to {target}' if target else ''}"
            raise ValueError(f"no model translates {pair}: available are {self._listed()}; see /languages")
        # The first of equals is taken.
        return min(suitable, key=lambda name: (not self.entries[name].own, self._family_rank(name)))

    def _family_rank(self, name: str) -> int:
        return FAMILIES.index(self.entries[name].settings.model.family)

    def _by_script(self, text: str, target: str | None) -> list[str]:
        """Latin script is taken for English; if no model reads English, for the only language that one reads."""
        guess = script_language(text) if text.strip() else None
        if guess is not None and any(entry.fits(guess, None) for entry in self.entries.values()):
            return self._from_to(guess, target)
        suitable = self._from_to(None, target)
        if any_source := [name for name in suitable if self.entries[name].languages[0] in UNNAMED]:
            return any_source
        if len({self.entries[name].languages[0] for name in suitable}) > 1 and text.strip():
            raise ValueError(f"cannot detect the language of {text.strip()[:30]!r} by its script: set source")
        return suitable

    def _from_to(self, source: str | None, target: str | None) -> list[str]:
        return [name for name, entry in self.entries.items() if entry.fits(source, target)]

    def unnamed(self) -> list[str]:
        """Return the models of which a language is not known."""
        return [name for name, entry in self.entries.items() if UNNAMED & set(entry.languages)]

    def _listed(self) -> str:
        return ", ".join(f"{name} ({' → '.join(entry.languages)})" for name, entry in self.entries.items()) or "none"


def folder_name(folder: Path) -> str:
    """Return the name of a run: the last part of its path that is not just `model`."""
    return next((part for part in reversed(folder.resolve().parts) if part not in {"model", "/"}), "model")


def check_folders(kind: str, folders: Sequence[Path], command: str) -> tuple[Path, ...]:
    """Refuse folders that hold no model, and two of the same name."""
    for folder in folders:
        if not (model_folder(folder) / CONFIG).is_file():
            raise ValueError(f"{folder} holds no {kind}: expected a folder made by {command}")
    names = [folder_name(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"each {kind} needs a folder with a name of its own, got {', '.join(names)}")
    return tuple(folders)


def _read_scores(folder: Path) -> ModelScores:
    """Return the BLEU of a model; a file that holds no such number is mentioned in the log, and no more."""
    try:
        scores = read_json(folder / SCORES) if (folder / SCORES).exists() else {}
        measured_on = next((kind for kind in ("test", "valid") if kind in scores), None)
        bleu = scores[measured_on].get("bleu") if measured_on else None
        if bleu is not None and (isinstance(bleu, bool) or not isfinite(bleu)):
            raise ValueError(f"BLEU must be a finite number, got {bleu!r}")
    except (ValueError, TypeError, AttributeError) as error:
        LOG.warning("ignored the scores in %s: %s", folder / SCORES, error)
        return ModelScores(None, None)
    return ModelScores(bleu, measured_on)


def _describe(name: str, entry: ModelEntry, loaded: bool) -> Model:
    model, (src_lang, tgt_lang) = entry.settings.model, entry.languages
    return Model(
        name=name,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        family=model.family,
        n_encoder_layers=model.n_encoder_layers,
        n_decoder_layers=model.n_decoder_layers,
        n_heads=model.n_heads,
        d_model=model.d_model,
        d_ff=model.d_ff,
        attention=model.attention.name,
        position=model.position.name,
        vocab_size=entry.settings.text.vocab_size,
        max_len=entry.settings.text.max_len,
        scores=entry.scores,
        loaded=loaded,
    )
