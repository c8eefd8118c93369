"""What the commands of studies with a page of documentation share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.studies import check_out, keep_figure
from regard.plot.terminal import escaped, say
from regard.study.page import Page, check_page, write_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Doc = Annotated[Path | None, typer.Option("--doc", help="Write the documentation's page here, from this run: .md.")]
Quick = Annotated[bool, typer.Option("--quick", help="Smaller and fewer: to see that it works, not for figures.")]


def check_places(out: Path | None, doc: Path | None) -> None:
    """Refuses a figure or a page that could not be saved before anything is computed."""
    check_out(out)
    check_page(doc)


def keep(draw: "Callable[[], Figure]", page: Callable[[], Page], out: Path | None, doc: Path | None) -> None:
    """Saves the figure and writes the page, where they are wanted."""
    if out is None and doc is None:
        return
    figure = draw()
    if out is not None:
        keep_figure(figure, out)
    if doc is not None:
        write_page(page(), figure, doc)
        say(f"[dim]page written to[/] {escaped(str(doc))}")
