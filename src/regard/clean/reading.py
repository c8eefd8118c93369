"""Parallel text in chunks that workers parse; a line that cannot be read is reported and ends nothing."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.data.files import decode_line, format_suffix, length_rule, open_bytes, raw_lines
from regard.data.formats import check_sources, parse_object, read_tmx, split_columns, split_source
from regard.data.normalise import normalise

LINES = 4096  # of a chunk
BYTES = 1 << 20  # after which a chunk ends early
SHOWN = 200  # bytes of a line that cannot be read
OBJECTS = (".json", ".jsonl")
STDIN = "standard input"

Report = Callable[[str], None]


@dataclass(frozen=True)
class RawChunk:
    """Lines of one source as they were read: two columns, or an object of JSON; None is a line that is too long."""

    name: str  # of the source, and what its parts are called: "pairs.tsv, line"
    first: int  # the number of the first line
    lines: tuple[bytes | None, ...]
    languages: tuple[str, str] | None  # of objects


@dataclass(frozen=True)
class ParsedLine:
    """A pair as it was written and normalised, or the problem that it cannot be read."""

    src: str
    tgt: str
    raw: str  # both sides before their control characters are dropped
    where: str
    problem: str | None = None


def parse(chunk: RawChunk) -> list[ParsedLine]:
    """Decode, split and normalise every line of a chunk."""
    return [_parse(line, f"{chunk.name} {n}", chunk.languages) for n, line in enumerate(chunk.lines, chunk.first)]


def _parse(line: bytes | None, where: str, languages: tuple[str, str] | None) -> ParsedLine:
    if line is None:
        return ParsedLine("", "", "", where, f"{where}: {length_rule()}")
    try:
        text = decode_line(line, where)
        if languages is not None and text.strip():
            src, tgt = parse_object(text, *languages, where)
        else:
            src, tgt = split_columns(text, where)
    except ValueError as error:
        return ParsedLine(normalise(line[:SHOWN].decode("utf-8", "replace")), "", "", where, str(error))
    return ParsedLine(normalise(src), normalise(tgt), f"{src}\t{tgt}", where)


def digest(line: bytes) -> int:
    """Return 8 bytes that are different for different lines, as a number that is as likely as any other."""
    return int.from_bytes(blake2b(line, digest_size=8).digest(), "little")


def read_chunks(sources: Sequence[str], src_lang: str, tgt_lang: str, report: Report) -> Iterator[RawChunk]:
    """Yield the text of all sources in order."""
    for source in sources:
        languages = (src_lang, tgt_lang) if format_suffix(source) in OBJECTS else None
        unit = "unit" if format_suffix(source) == ".tmx" else "line"
        name = f"{STDIN if Path(source).name == SPOOLED else source}, {unit}"
        yield from _chunks(_lines(source, src_lang, tgt_lang, report), name, languages)


def _chunks(lines: Iterator[bytes | None], name: str, languages: tuple[str, str] | None) -> Iterator[RawChunk]:
    some: list[bytes | None] = []
    first, size = 1, 0
    for line in lines:
        some.append(line)
        size += len(line or b"")
        if len(some) == LINES or size > BYTES:
            yield RawChunk(name, first, tuple(some), languages)
            first, size = first + len(some), 0
            some = []
    if some:
        yield RawChunk(name, first, tuple(some), languages)


def _lines(source: str, src_lang: str, tgt_lang: str, report: Report) -> Iterator[bytes | None]:
    files = split_source(source)
    if len(files) == 2:
        return _aligned(*files)
    if format_suffix(source) == ".tmx":
        pairs = read_tmx(source, src_lang, tgt_lang, report)
        return (f"{pair.src}\t{pair.tgt}".encode() for pair in pairs)  # neither has a tab, for they are normalised
    return (line for _, line in raw_lines(source))


def _aligned(src: str, tgt: str) -> Iterator[bytes | None]:
    """Join the lines of two files by tabs; raise ValueError if one has more of them than the other."""
    for n, (one, other) in enumerate(zip_longest(raw_lines(src), raw_lines(tgt))):
        if one is None or other is None:
            longer, shorter = (tgt, src) if one is None else (src, tgt)
            raise ValueError(
                f"{src} and {tgt} must have the same number of lines, got {n} in {shorter} and more in {longer}; each "
                "line must be the translation of its counterpart"
            )
        a, b = one[1], other[1]
        yield (
            None if a is None or b is None else a.rstrip(b"\r\n").replace(b"\t", b" ") + b"\t" + b.replace(b"\t", b" ")
        )


SPOOLED = "standard-input.tsv"


@contextmanager
def readable_twice(sources: Sequence[str]) -> Iterator[list[str]]:
    """Yield sources that can be read more than once: standard input is copied to a temporary file."""
    check_sources(sources)
    if sources.count("-") > 1:
        raise ValueError(f"standard input can be read once, got - {sources.count('-')} times; name it once")
    if "-" not in sources:
        yield list(sources)
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / SPOOLED
        with open_bytes("-") as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file)
        yield [str(copy) if source == "-" else source for source in sources]
