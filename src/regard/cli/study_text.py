"""The model that a study looks at, the text that it reads, and what becomes of the result."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.study_page import keep
from regard.plot.terminal import print_json, print_tables, say
from regard.study.page import Page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Model = Annotated[str, typer.Argument(help="A model folder, or the name of a bundled model.")]
Data = Annotated[list[str] | None, typer.Option(help="Parallel text; sentences that come along if none is named.")]
Sentences = Annotated[int, typer.Option(min=1, help="Pairs that are read, from the first on.")]
HIDDEN = ("--doc", "--out", "-o")  # where things go does not move a number


def read_text(
    model: str, data: list[str] | None, sentences: int, device: str
) -> tuple[Any, list[tuple[str, str]], str]:
    """Opens a model and a text; gives both, and the device that was chosen."""
    from regard.cli.analyse import read_with
    from regard.study.inputs import bundled_pairs
    from regard.train.run import choose_device

    place = choose_device(device).type
    if data:
        _, translator, pairs = read_with(model, data, place, most=sentences)
        return translator, pairs, place
    from regard.pipeline import load_translator

    translator = load_translator(model, device=place)
    return translator, bundled_pairs(translator.src_lang, translator.tgt_lang)[:sentences], place


def say_unread(n: int) -> None:
    """Says how many pairs were left out."""
    if n:
        say(f"[yellow]pairs left out, as a side is empty or longer than the model reads: {n}[/]")


def hand_over(
    study: Any,
    draw: "Callable[[], Figure]",
    tell: Callable[[], Page],
    signature: dict[str, Any],
    places: tuple[Path | None, Path | None],
    json_: bool,
) -> None:
    """Saves the figure and the page where they are wanted, and prints tables or JSON."""
    from regard.study.stats import plain

    page = replace(tell(), command=command_line(sys.argv), signature=signature)
    keep(draw, lambda: page, *places)
    if json_:
        return print_json({**plain(study), "signature": signature})
    print_tables(*page.tables)


def short_name(word: str) -> str:
    """Gives the folder and name of a file, as far as anybody else needs to know them; any other word as it is."""
    path = Path(word)
    return str(Path(*path.parts[-2:])) if path.is_absolute() else word


def command_line(argv: list[str]) -> str:
    """Gives the command as anybody can type it: without where things go and how, files by folder and name alone."""
    words, skipped = ["regard"], False
    for word in argv[1:]:
        if not skipped and word.partition("=")[0] not in {*HIDDEN, "--json"}:
            words.append(short_name(word))
        skipped = word in HIDDEN
    return shlex.join(words)
