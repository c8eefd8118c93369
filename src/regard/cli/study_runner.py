"""What all studies share on the command line: the inputs, the signature, and what becomes of the result."""

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import torch
from rich.table import Table
from rich.text import Text

from regard.cli.evaluate import read_sides, read_with_model
from regard.device import find_device
from regard.pipeline import load_translator
from regard.pipeline.translator import Translator
from regard.plot.style import check_figure, save_and_report
from regard.study.repeats import signature
from regard.study.sequences import bundled_pairs
from regard.terminal import message, print_json, print_tables, to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

R = TypeVar("R", contravariant=True)
# Where a result goes, and in which form, does not change it.
NOT_SHOWN = {"--out", "-o"}


@runtime_checkable
class StudyModule(Protocol[R]):
    """A study: a module of `regard.study` that makes a result R, tables of it, and a figure."""

    @property
    def __name__(self) -> str: ...

    def tables(self, result: R, /) -> dict[str, Table]: ...

    def figure(self, result: R, /) -> "Figure": ...


@dataclass(frozen=True)
class StudyOutput:
    """What --json and --out ask for; a figure that could not be saved is refused before anything is computed."""

    json: bool
    out: Path | None

    def __post_init__(self) -> None:
        check_figure(self.out)

    def show(self, study: StudyModule[R], result: R, signed: dict[str, Any], command: str | None = None) -> None:
        """Save the figure where it is asked for, and print tables, or all as JSON.

        The JSON has the study's name, the signature with the command, the tables, and the result's own fields.
        """
        if self.out is not None:
            save_and_report(study.figure(result), self.out)
        tables = study.tables(result)
        if not self.json:
            return print_tables(*tables.values())
        name = study.__name__.rpartition(".")[2].replace("_", "-")
        signed = {"command": command or command_line(sys.argv), **signed}
        listed = {key: table_json(table) for key, table in tables.items()}
        print_json({"study": name, **to_json(result), "signature": signed, "tables": listed})


@dataclass(frozen=True)
class ModelInputs:
    """A model and the pairs that a study reads with it."""

    name: str
    translator: Translator
    pairs: list[tuple[str, str]]
    device: str

    def sign(self, result: Any, seed: int, **more: Any) -> dict[str, Any]:
        """Report the pairs that the model could not read, and return the signature of the result."""
        if result.n_unread:
            message(f"[yellow]pairs skipped, as a side is empty or longer than the model reads: {result.n_unread}[/]")
        return signature(self.device, seed=seed, model=self.name, pairs=result.n_pairs, **more)


def read_inputs(model: str, data: list[str] | None, limit: int, device: str) -> ModelInputs:
    """Open a model and a text; without a text, the bundled sentences in the model's languages."""
    place = torch.device(find_device(device)).type
    if data:
        _, translator, pairs = read_with_model(model, data, place, limit=limit)
    else:
        translator = load_translator(model, device=place)
        pairs = bundled_pairs(translator.src_lang, translator.tgt_lang)[:limit]
    return ModelInputs(short_name(model), translator, pairs, place)


HF = "hf:"  # before the folder or name of a Hugging Face model


@dataclass(frozen=True)
class HFInputs:
    """A Hugging Face model, and the pairs that a study reads with it; most models read their sources alone."""

    name: str
    model: Any
    tokenizer: Any
    pairs: list[tuple[str, str]]
    device: str


def read_hf_inputs(model: str, data: list[str] | None, limit: int, device: str) -> HFInputs:
    """Open a Hugging Face model and a text; without a text, the bundled sentences, English to Chinese."""
    place, name = torch.device(find_device(device)).type, model.removeprefix(HF)
    made, tokenizer = load_hf(name)
    pairs = read_sides(data, ("src", "tgt"), limit=limit) if data else bundled_pairs("en", "zh")[:limit]
    return HFInputs(HF + short_name(name), made.to(place), tokenizer, pairs, place)


def load_hf(name: str) -> tuple[Any, Any]:
    """Load a model without its head, and its tokenizer; no code that comes with a model is run."""
    try:
        from transformers import AutoModel, AutoTokenizer  # which this package does not need
    except ImportError as error:
        raise ValueError(f"{HF}{name} needs transformers, which is not installed: pip install transformers") from error
    try:
        return AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{HF}{name} cannot be opened as a Hugging Face model: {reason}") from error


def table_json(table: Table) -> dict[str, Any]:
    """Return a table as columns and rows of text, with its title, and its caption as a note."""
    rows = zip(*([_text(cell) for cell in column.cells] for column in table.columns), strict=True)
    made: dict[str, Any] = {"columns": [_text(column.header) for column in table.columns], "rows": [*map(list, rows)]}
    named = {"title": table.title, "note": table.caption}
    return {**made, **{name: _text(text) for name, text in named.items() if text}}


def _text(cell: object) -> str:
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return text.replace("-\n", "").replace("\n", " ")


def short_name(word: str) -> str:
    """Return the folder and name of an absolute path, which is what others need to know; any other word as it is."""
    path = Path(word)
    return str(Path(*path.parts[-2:])) if path.is_absolute() else word


def command_line(argv: list[str]) -> str:
    """Return the command as anybody can type it: without --out and --json, absolute paths by folder and name alone."""
    words, skipped = ["regard"], False
    for word in argv[1:]:
        if not skipped and word.partition("=")[0] not in {*NOT_SHOWN, "--json"}:
            words.append(short_name(word))
        skipped = word in NOT_SHOWN
    return shlex.join(words)
