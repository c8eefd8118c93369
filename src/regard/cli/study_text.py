"""The model that a study looks at, the text that it reads, and what becomes of the result."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.studies import check_out, keep_figure
from regard.plot.terminal import escaped, print_json, print_tables, say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from regard.plot.model_page import Story

Model = Annotated[str, typer.Argument(help="A model folder, or the name of a bundled model.")]
Data = Annotated[list[str] | None, typer.Option(help="Parallel text; sentences that come along if none is named.")]
Sentences = Annotated[int, typer.Option(min=1, help="Pairs that are read, from the first on.")]
Quick = Annotated[bool, typer.Option("--quick", help="Less of everything, to see what it is like.")]
Doc = Annotated[
    Path | None, typer.Option(help="Write the page about this run here, its picture into images beside it.")
]
HIDDEN = ("--doc", "--out", "-o")  # where things go does not move a number


def read_text(
    model: str, data: list[str] | None, sentences: int, device: str
) -> tuple[Any, list[tuple[str, str]], str]:
    """Opens a model and a text; gives both, and the device that was chosen."""
    from regard.cli.parallel import read_with
    from regard.study.bundled import bundled_pairs
    from regard.train.run import choose_device

    place = choose_device(device).type
    if data:
        _, translator, pairs = read_with(model, data, place, most=sentences)
        return translator, pairs, place
    from regard.decode.load import load

    translator = load(model, device=place)
    return translator, bundled_pairs(translator.src_lang, translator.tgt_lang)[:sentences], place


def check_places(out: Path | None, doc: Path | None) -> None:
    """Refuses files that could not be written before anything is computed."""
    check_out(out)
    if doc is None:
        return
    if doc.suffix != ".md":
        raise ValueError(f"a page's file must end in .md, got {doc.name!r}")
    check_out(doc.parent / f"{doc.stem}.png")


def say_unread(n: int) -> None:
    """Says how many pairs were left out."""
    if n:
        say(f"[yellow]pairs left out, as a side is empty or longer than the model reads: {n}[/]")


def hand_over(
    study: Any,
    draw: "Callable[[], Figure]",
    tell: "Callable[[], Story]",
    signature: dict[str, Any],
    places: tuple[Path | None, Path | None],
    json_: bool,
) -> None:
    """Saves the figure and the page where they are wanted, and prints tables or JSON."""
    from regard.study.record import plain

    out, doc = places
    if out is not None:
        keep_figure(draw(), out)
    story = tell()
    if doc is not None:
        from regard.plot.model_page import write_page

        (doc.parent / "images").mkdir(exist_ok=True)
        keep_figure(draw(), doc.parent / "images" / f"{doc.stem}.png")
        write_page(doc, story, command_line(sys.argv), signature)
        say(f"[dim]page saved as[/] {escaped(str(doc))}")
    if json_:
        return print_json({**plain(study), "signature": signature})
    print_tables(*story.tables)


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
