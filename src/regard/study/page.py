"""A study as a page of the documentation, written from the very run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REMARKS = "## Remarks"  # what stands under it is written by hand, and is kept when the page is written again


@dataclass(frozen=True)
class Page:
    """What a page says; its picture lies beside it in `images/`, under the page's own name."""

    title: str
    question: str
    method: Sequence[str]
    tables: Sequence[Table]
    picture: str  # what it shows
    findings: Sequence[str]
    command: str = ""
    signature: dict[str, Any] = field(default_factory=dict)
    more: str = ""  # markdown that closes the page


def check_page(path: Path | None) -> None:
    """Refuses a page that could not be written before anything is computed."""
    if path is None:
        return
    if path.suffix != ".md":
        raise ValueError(f"a page's file must end in .md, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder for {path.name!r} does not exist: {path.parent}")
    if find_spec("matplotlib") is None:
        raise ValueError("a page has a picture, and matplotlib is not installed: pip install 'regard[plot]'")


def write_page(page: Page, figure: "Figure", path: Path) -> None:
    """Writes the page, whole or not at all, once its picture is there; remarks by hand at its end stay."""
    from regard.atomic import atomic_file  # whose room is slow to enter, and commands load this file for their help
    from regard.plot.style import save_figure

    picture = path.parent / "images" / f"{path.stem}.png"
    picture.parent.mkdir(exist_ok=True)
    save_figure(figure, picture)
    remarks = kept_remarks(path)
    text = page_text(page, f"images/{picture.name}") + (f"\n{remarks}" if remarks else "")
    with atomic_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def kept_remarks(path: Path) -> str:
    """Gives what was written by hand on a page that is there, or nothing."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return before[before.index(REMARKS) :] if REMARKS in before else ""


def page_text(page: Page, picture: str) -> str:
    """Gives the page as markdown."""
    told = ", ".join(f"{name} {value}" for name, value in page.signature.items())
    parts = [
        f"# {page.title}",
        page.question,
        f"```sh\n{page.command}\n```",
        f"![{page.picture}]({picture})",
        f"*{page.picture}*",
        "## What the numbers say",
        "\n".join(f"- {line}" for line in page.findings),
        "## How it is measured",
        "\n".join(f"- {line}" for line in page.method),
        "## What was measured",
        *(text for table in page.tables for text in _shown(table)),
        f"Signature: {told}.",
        *([page.more] if page.more else []),
    ]
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """Gives a terminal's table as markdown, so that the two never differ."""
    heads = [_plain(column.header) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = zip(*([_plain(cell) for cell in column.cells] for column in table.columns), strict=True)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _shown(table: Table) -> list[str]:
    return [f"**{table.title}**", markdown_table(table), *([_plain(table.caption)] if table.caption else [])]


def _plain(cell: object) -> str:
    text = cell.plain if isinstance(cell, Text) else str(cell)
    return text.replace("-\n", "").replace("\n", " ").replace("|", "\\|")
