"""Texts without translations, as they stand in files: one that runs on, or a document on each line."""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from regard.text.lines import read_lines
from regard.text.stream import open_bytes

BLOCK = 1 << 20  # bytes that are read at once


@dataclass(frozen=True)
class Document:
    """A text by itself, the file and line where it stands, and the number of its source."""

    text: str
    where: str
    origin: int = 0


def read_running(source: str) -> Iterator[str]:
    """Gives a file's text, block by block; joined they are the text to the last sign, a mark of byte order aside."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with open_bytes(source) as stream:
        try:
            yield from (decoder.decode(block) for block in iter(partial(stream.read, BLOCK), b""))
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            wrong = error.object[error.start : error.start + 4]
            raise ValueError(f"{source}: text must be UTF-8, got {wrong!r}; save or convert it as UTF-8") from error


def read_documents(sources: Sequence[str], columns: Sequence[int]) -> Iterator[Document]:
    """Reads source after source, a document on each line; its columns, all or those that are chosen, become lines."""
    for origin, source in enumerate(sources):
        for number, line in enumerate(read_lines(source), start=1):
            where = f"{source}, line {number}"
            yield Document("\n".join(_chosen(line.split("\t"), columns, where)), where, origin)


def _chosen(cells: list[str], columns: Sequence[int], where: str) -> list[str]:
    if not columns or cells == [""]:
        return cells
    if max(columns) > len(cells):
        raise ValueError(
            f"{where}: data.columns must be columns of every line, got {max(columns)} and a line with {len(cells)}"
        )
    return [cells[column - 1] for column in columns]
