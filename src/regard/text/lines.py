"""The lines of a UTF-8 file, one at a time."""

import codecs
from collections.abc import Iterator
from functools import partial

from regard.text.stream import open_bytes

LONGEST = 1 << 24  # bytes; a line beyond it is no sentence, and would have to be held whole


def read_lines(source: str) -> Iterator[str]:
    """Gives the lines of a file without their ends; only a line feed ends one, since U+2028 and its like are text."""
    with open_bytes(source) as stream:
        for number, raw in enumerate(iter(partial(stream.readline, LONGEST), b""), start=1):
            if number == 1:
                raw = _unmarked(raw, source)
            if len(raw) == LONGEST:
                raise ValueError(
                    f"{source}, line {number}: a line must be shorter than {LONGEST} bytes; "
                    "give text with one pair on each line"
                )
            yield _decoded(raw, f"{source}, line {number}").removesuffix("\n").removesuffix("\r")


def _unmarked(raw: bytes, source: str) -> bytes:
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(f"{source}, line 1: text must be UTF-8, got UTF-16; save or convert it as UTF-8")
    return raw.removeprefix(codecs.BOM_UTF8)


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = raw[error.start : error.start + 4]
        raise ValueError(
            f"{where}: text must be UTF-8, got {wrong!r} after {error.start} bytes; save or convert it as UTF-8"
        ) from error
