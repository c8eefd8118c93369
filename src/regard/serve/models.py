"""Model registry: translators, readers, generators."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

from regard.checkpoint import CONFIG, SCORES, model_folder, read_json, read_settings
from regard.config import Settings, choose
from regard.data.normalise import language_code
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.serve.requests import BrokenError
from regard.serve.schema_api import Model, Scores
from regard.zoo import HOME, find_model, present, script_language

if TYPE_CHECKING:
    from regard.pipeline.generator import Generator
    from regard.qa.model import QuestionReader


LOG = logging.getLogger("regard.serve")
FAMILIES = ("transformer", "recurrent")  # in the order of preference


@dataclass(frozen=True, eq=False)
class Book:
    """One model: where it lies, how it was made, what it reached."""

    folder: Path
    made: Settings
    scores: Scores
    lock: Lock

    @property
    def languages(self) -> tuple[str, str]:
        """What it reads and what it writes."""
        return language_code(self.made.data.src_lang), language_code(self.made.data.tgt_lang)


class Shelf:
    """Own models stand before bundled ones; any thread may take one."""

    def __init__(self, own: Sequence[str] = (), precision: str = "float32", device: str = "cpu", home: Path = HOME):
        self.precision = precision
        self.device = device
        self.books: dict[str, Book] = {}
        self._open: dict[str, Translator] = {}
        for folder in [find_model(each, home) for each in own]:
            self._add(_free(_own_name(folder), self.books), folder)
        for name in present(home):
            if home / name not in {book.folder for book in self.books.values()}:
                self._add(_free(name, self.books), home / name)

    def _add(self, name: str, folder: Path) -> None:
        inside = model_folder(folder)
        made = read_settings(inside / CONFIG)
        if made.model.family not in FAMILIES:
            raise ValueError(
                f"{folder}: a server's models must translate, got a {made.model.family}: use regard generate"
            )
        self.books[name] = Book(folder, made, _scores(inside), Lock())

    def open(self, name: str) -> Translator:
        """Gives a model, loaded now if it was not."""
        book = choose(self.books, name, "model")
        with book.lock:
            if name not in self._open:
                try:
                    self._open[name] = load_translator(book.folder, self.precision, self.device)
                except Exception as error:
                    LOG.exception("model %s could not be loaded", name)
                    raise BrokenError(f"the model {name!r} could not be loaded; the server's log says why") from error
            return self._open[name]

    def models(self) -> list[Model]:
        """Describes all models."""
        return [_described(name, book, name in self._open) for name, book in self.books.items()]

    def pick(self, source: str, target: str | None, text: str) -> str:
        """Names the model that suits; `auto` goes by the script of the text, where a model reads what it tells."""
        fitting = self._by_script(text, target) if source == "auto" else self._from_to(source, target)
        if not fitting:
            from_to = f"from {source}{f' to {target}' if target else ''}"
            raise ValueError(f"no model translates {from_to}: there are {self._listed()}; see /languages")
        names = list(self.books)
        return min(fitting, key=lambda name: (FAMILIES.index(self.books[name].made.model.family), names.index(name)))

    def _by_script(self, text: str, target: str | None) -> list[str]:
        """Latin letters may be any language's: where no model reads the one they are taken for, the only other is."""
        read = {book.languages[0] for book in self.books.values()}
        guess = script_language(text) if text.strip() else None
        if guess in read:
            return self._from_to(guess, target)
        fitting = self._from_to(None, target)
        if len({self.books[name].languages[0] for name in fitting}) > 1 and text.strip():
            raise ValueError(f"the script of the text tells no language, got {text.strip()[:30]!r}: name the source")
        return fitting

    def _from_to(self, source: str | None, target: str | None) -> list[str]:
        wanted = tuple(None if code is None else language_code(code) for code in (source, target))
        pairs = {name: zip(wanted, book.languages, strict=True) for name, book in self.books.items()}
        return [name for name, pair in pairs.items() if all(want in {None, have} for want, have in pair)]

    def _listed(self) -> str:
        return ", ".join(f"{name} ({' → '.join(book.languages)})" for name, book in self.books.items()) or "none"


def _own_name(folder: Path) -> str:
    """Gives a run's name: the last part of its path that says something."""
    return next((part for part in reversed(folder.resolve().parts) if part not in {"model", "/"}), "model")


def _free(name: str, taken: dict[str, Book]) -> str:
    names = (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3)))
    return next(each for each in names if each not in taken)


def _scores(folder: Path) -> Scores:
    found = read_json(folder / SCORES) if (folder / SCORES).exists() else {}
    measured_on = next((kind for kind in ("test", "valid") if kind in found), None)
    return Scores(found[measured_on].get("bleu") if measured_on else None, measured_on)


def _described(name: str, book: Book, loaded: bool) -> Model:
    made, (src_lang, tgt_lang) = book.made.model, book.languages
    return Model(
        name=name,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        family=made.family,
        n_encoder_layers=made.n_encoder_layers,
        n_decoder_layers=made.n_decoder_layers,
        n_heads=made.n_heads,
        d_model=made.d_model,
        d_ff=made.d_ff,
        attention=made.attention.name,
        position=made.position.name,
        vocab_size=book.made.text.vocab_size,
        max_len=book.made.text.max_len,
        scores=book.scores,
        loaded=loaded,
    )


LOG = logging.getLogger("regard.serve")
T = TypeVar("T")


class Library(Generic[T]):
    """Models of one kind; any thread may ask for one."""

    def __init__(self, kind: str, folders: Sequence[Path], load: Callable[[Path], T]):
        self.kind = kind
        self.folders = {name_of(folder): folder for folder in folders}
        self._load = load
        self._lock = Lock()
        self._open: dict[str, T] = {}

    def open(self, name: str | None) -> tuple[str, T]:
        """Gives a model with its name, the first where none is named, loaded now if it was not."""
        if not self.folders:
            raise ValueError(f"this server has no {self.kind}: start it with --{self.kind} FOLDER")
        name = next(iter(self.folders)) if name is None else name
        folder = choose(self.folders, name, self.kind)
        with self._lock:
            if name not in self._open:
                try:
                    self._open[name] = self._load(folder)
                except Exception as error:
                    LOG.exception("%s %s could not be loaded", self.kind, name)
                    raise BrokenError(
                        f"the {self.kind} {name!r} could not be loaded; the server's log says why"
                    ) from error
            return name, self._open[name]


def name_of(folder: Path) -> str:
    """Gives a run's name: the last part of its path that says something."""
    return next((part for part in reversed(folder.resolve().parts) if part not in {"model", "/"}), "model")


def check_folders(kind: str, folders: Sequence[Path], made_by: str) -> tuple[Path, ...]:
    """Refuses folders that hold no model, and two of one name."""
    for folder in folders:
        if not (model_folder(folder) / CONFIG).is_file():
            raise ValueError(f"{folder} holds no {kind}: name a folder that {made_by} made")
    names = [name_of(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"a {kind} is called by its folder's name, and these must differ, got {', '.join(names)}")
    return tuple(folders)


def load_reader(folder: Path) -> "QuestionReader":
    """Loads a reader of questions."""
    from regard.qa.model import load_reader as load  # which servers without one need not

    return load(folder)


def load_writer(folder: Path) -> "Generator":
    """Loads a model that writes; raises ValueError for another."""
    from regard.pipeline import load_generator

    return load_generator(folder)
