"""The page about a study of a model, in Markdown, written from the very run that it tells of."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from regard.text.whole import whole_file

REMARKS = "## Remarks"  # what stands under it is written by hand, and is kept when the page is written again


@dataclass(frozen=True, eq=False)
class Story:
    """What a page says: the question, how it is answered, tables, what the picture shows, what the numbers say."""

    title: str
    question: str
    method: Sequence[str]
    tables: Sequence[Table]
    picture: str
    findings: Sequence[str]


def write_page(path: Path, story: Story, command: str, signature: dict[str, Any]) -> None:
    """Writes the page; its picture lies in `images` beside it, under the page's name."""
    text = page(story, command, signature, f"images/{path.stem}.png") + kept_remarks(path)
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def kept_remarks(path: Path) -> str:
    """Gives what was written by hand on a page that is there, or nothing."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    return before[before.index(REMARKS) :] if REMARKS in before else ""


def page(story: Story, command: str, signature: dict[str, Any], picture: str) -> str:
    """Puts the page together."""
    lines = [f"# {story.title}", "", story.question, "", "```sh", command, "```", ""]
    lines += [f"![{story.picture}]({picture})", "", f"*{story.picture}*", ""]
    lines += ["## What the numbers say", "", *(f"- {line}" for line in story.findings), ""]
    lines += ["## How it is measured", "", *(f"- {line}" for line in story.method), ""]
    for table in story.tables:
        lines += ["", f"**{table.title}**", "", *as_markdown(table), ""]
    told = ", ".join(f"{name} {value}" for name, value in signature.items())
    return "\n".join([*lines, f"Signature: {told}", ""]) + "\n"


def as_markdown(table: Table) -> list[str]:
    """Gives the rows of a table for the terminal as those of a page, and its caption."""
    heads = [str(column.header).replace("\n", " ") for column in table.columns]
    rule = ["---:" if column.justify == "right" else "---" for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [_row(heads), _row(rule), *(_row([str(cell) for cell in row]) for row in rows)]
    return [*lines, "", str(table.caption)] if table.caption else lines


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
