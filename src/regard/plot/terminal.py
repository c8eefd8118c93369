"""What commands print: sentences, tables, JSON, and bars while one waits."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

T = TypeVar("T")


def with_bar(items: Iterable[T], total: int | None, what: str) -> Iterable[T]:
    """Shows progress on the error stream, where a person is watching, so that results can be piped."""
    console = Console(stderr=True)
    return track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal)


def as_json(result: Any) -> str:
    """Gives a result as one line of JSON."""
    from regard.study.record import plain

    return json.dumps(plain(result), ensure_ascii=False)


def print_json(result: Any) -> None:
    """Prints a result for programs."""
    print(as_json(result))


def print_tables(*tables: Table) -> None:
    """Prints tables for people; brackets and colons in somebody's words are just that."""
    console = Console(markup=False, emoji=False)
    for table in tables:
        console.print(table)
        console.print()


def print_markdown(text: str) -> None:
    """Prints a page for people."""
    from rich.markdown import Markdown

    Console().print(Markdown(text))


@contextmanager
def writing(output: Path | None) -> Iterator[Callable[[str], None]]:
    """Gives what writes a line to stdout, or to a file that is there whole in the end or not at all."""
    if output is None:
        yield print
        return
    from regard.text.whole import whole_file

    with whole_file(output) as draft, draft.open("w", encoding="utf-8") as file:
        yield lambda line: print(line, file=file)


def say(message: str) -> None:
    """Says a sentence on the error stream."""
    Console(stderr=True, soft_wrap=True, emoji=False).print(message)


def escaped(text: str) -> str:
    """Keeps a text from being read as markup."""
    return escape(text)
