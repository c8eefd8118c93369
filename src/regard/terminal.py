"""What commands print: results as tables and JSON, messages, progress bars."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

from regard.atomic import atomic_file

__all__ = [
    "QUIET",
    "escape",
    "message",
    "open_output",
    "print_json",
    "print_tables",
    "progress_bar",
    "readable",
    "shorten",
    "to_json",
    "to_json_line",
]

T = TypeVar("T")

MARK = "▁"  # SentencePiece's sign for the space before a token
MAX_COLUMNS = 16  # of a label; a Chinese character takes two
# What would break a line, or show nothing at all; a space between words is visible.
_INVISIBLE = re.compile(r"^ +| +$|[^\S ]|[\x00-\x1f\x7f\u200b\ufeff]")

# The style of all tables: a rule below the header, no frame.
QUIET: Any = {
    "box": SIMPLE_HEAD,
    "title_justify": "left",
    "caption_justify": "left",
    "title_style": "bold",
    "pad_edge": False,
    "show_edge": False,
    "padding": (0, 1, 0, 0),
}


def message(markup: str) -> None:
    """Print a message to stderr, so that stdout holds nothing but results; `escape` what is not markup."""
    Console(stderr=True, soft_wrap=True, emoji=False).print(markup)


def progress_bar(items: Iterable[T], total: int | None, what: str) -> Iterable[T]:
    """Show progress on stderr while items are consumed; nothing is shown where stderr is not a terminal."""
    console = Console(stderr=True)
    return track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal)


def print_tables(*tables: Table) -> None:
    """Print tables; brackets and colons in their cells are text, not markup."""
    console = Console(markup=False, emoji=False)
    for table in tables:
        console.print(table)
        console.print()


def print_json(result: Any) -> None:
    """Print a result as one line of JSON."""
    print(to_json_line(result))


def to_json_line(result: Any) -> str:
    """Return a result as one line of JSON."""
    return json.dumps(to_json(result), ensure_ascii=False)


def to_json(value: Any) -> Any:
    """Turn dataclasses, tensors, arrays and tuples into dicts, lists and numbers; NaN and infinities become null.

    A field whose metadata say `json` has that key, which readers of our JSON know from earlier versions.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {each.metadata.get("json", each.name): to_json(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    tolist = getattr(value, "tolist", None)  # of tensors and arrays, without importing their libraries
    return value if tolist is None else to_json(tolist())


@contextmanager
def open_output(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes a line: to stdout at once, or to a file that is complete in the end.

    If an exception is raised, Ctrl-C's too, what was written is kept beside it under another name, and a file that was
    there before stays as it was.
    """
    if path is None:
        yield partial(print, flush=True)
        return
    with atomic_file(path) as draft:
        try:
            with draft.open("w", encoding="utf-8") as file:
                yield partial(print, file=file)
        except BaseException:
            _keep_unfinished(draft, path)
            raise


def _keep_unfinished(draft: Path, path: Path) -> None:
    if not draft.exists() or not draft.stat().st_size:
        return
    names = (path.with_name(f"{path.name}.unfinished{number or ''}") for number in count())
    kept = next(name for name in names if not name.exists())
    draft.rename(kept)
    message(f"[dim]what was written so far is in[/] {escape(str(kept))}")


def readable(token: str) -> str:
    """Return a token as a label: SentencePiece's mark as a dot, invisible characters as ␣, shortened where long."""
    return shorten(_INVISIBLE.sub("␣", token).replace(MARK, "·") or "∅")


def shorten(text: str, columns: int = MAX_COLUMNS) -> str:
    """Cut a text to a number of terminal columns, the last of them being `…`."""
    return text if cell_len(text) <= columns else set_cell_size(text, columns - 1).rstrip() + "…"
