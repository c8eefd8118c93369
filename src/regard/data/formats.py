"""TSV, aligned files, JSON lines, TMX, plain documents -> pairs and documents."""

import codecs
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, ParseError, iterparse

from regard.config import DataSettings, unknown
from regard.data.files import (
    COMPRESSED,
    MAX_LINE_BYTES,
    OVERLONG_LINE,
    check_file,
    format_suffix,
    open_bytes,
    read_lines,
)
from regard.data.normalise import Pair, make_pair, normalise


def read_tsv(source: str) -> Iterator[Pair]:
    """Read `source<TAB>target`; columns after the second are ignored, and an empty line is an empty pair."""
    for number, line in enumerate(read_lines(source, skip_overlong=True), start=1):
        where = f"{source}, line {number}"
        if line == OVERLONG_LINE:
            yield Pair("", "", where, overlong=True)
        else:
            yield make_pair(*split_columns(line, where), where)


def split_columns(line: str, where: str) -> tuple[str, str]:
    """Return the first two columns of a line; those of an empty line are empty."""
    columns = line.split("\t", 2)
    if len(columns) < 2 and line.strip():
        raise ValueError(f"{where}: a line must have two columns separated by a tab, got 1: {line[:60]!r}")
    return columns[0], columns[1] if len(columns) > 1 else ""


def read_aligned(src: str, tgt: str) -> Iterator[Pair]:
    """Read two files line by line; raise ValueError at the end if one has more lines than the other."""
    lines = zip_longest(read_lines(src, skip_overlong=True), read_lines(tgt, skip_overlong=True))
    number = 0
    for number, (a, b) in enumerate(lines, start=1):
        if a is None or b is None:
            longer = number + sum(1 for _ in lines)
            n_src, n_tgt = (number - 1, longer) if a is None else (longer, number - 1)
            raise ValueError(
                f"{src} and {tgt} must have the same number of lines, got {n_src} and {n_tgt}; "
                "each line must be the translation of its counterpart"
            )
        where = f"{src}, line {number}"
        yield Pair("", "", where, overlong=True) if OVERLONG_LINE in {a, b} else make_pair(a, b, where)


def read_json_lines(source: str, src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Read an object from each line: with `src` and `tgt`, `source` and `target`, or a `translation` by language."""
    for number, line in enumerate(read_lines(source, skip_overlong=True), start=1):
        where = f"{source}, line {number}"
        if line.strip():
            yield make_pair(*parse_object(line, src_lang, tgt_lang, where), where)
        else:
            yield Pair("", "", where, overlong=line == OVERLONG_LINE)


def parse_object(line: str, src_lang: str, tgt_lang: str, where: str) -> tuple[str, str]:
    """Return the two sides of a JSON object."""
    row = _object(line, where)
    row = row.get("translation", row)
    names = (("src", "tgt"), ("source", "target"), (src_lang, tgt_lang))
    sides = _json_sides(row, names) if isinstance(row, dict) else None
    if sides is None:
        raise ValueError(
            f"{where}: an object must have strings for src and tgt, source and target, or the languages "
            f"{src_lang} and {tgt_lang} (data.src_lang, data.tgt_lang), got {line[:80]!r}"
        )
    return sides


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: each line must be one JSON object, got {line[:60]!r} ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: each line must be one JSON object, got {line[:60]!r}")
    return row


def _json_sides(row: dict[str, Any], names: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    for src, tgt in names:
        if isinstance(row.get(src), str) and isinstance(row.get(tgt), str):
            return row[src], row[tgt]
    return None


XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
UNNAMED = (DataSettings.src_lang, DataSettings.tgt_lang)
# Inline elements that hold markup of another format, not text of the sentence.
CODES = {"bpt", "ept", "it", "ph", "ut"}


def read_tmx(source: str, src_lang: str, tgt_lang: str, report: Callable[[str], None] | None = None) -> Iterator[Pair]:
    """Stream the units of a TMX file; without language names, use the first two of each unit.

    A unit without the languages raises ValueError; or, if there is somebody to `report` it to, it is an empty pair.
    """
    with open_bytes(source) as stream:
        metered = _MeteredStream(stream, source)
        events = iterparse(metered, events=("start", "end"))  # pyright: ignore[reportArgumentType, reportCallIssue]
        try:
            for number, unit in enumerate(_units(events), start=1):
                metered.n_bytes, metered.n_units = 0, number
                where = f"{source}, unit {number}"
                yield make_pair(*_reported_sides(_sentences(unit), src_lang, tgt_lang, where, report), where)
        except ParseError as error:
            raise ValueError(
                f"{source}, line {error.position[0]}: the file must be well-formed XML, got {error}"
            ) from error


class _MeteredStream:
    """Bytes for a parser that keeps all of a unit in memory; one that is too long is refused."""

    def __init__(self, stream: io.BufferedIOBase, source: str):
        self.stream = stream
        self.source = source
        self.n_bytes = self.n_units = 0  # bytes since the last unit

    def read(self, n_bytes: int) -> bytes:
        if self.n_bytes > MAX_LINE_BYTES:
            raise ValueError(
                f"{self.source}, unit {self.n_units + 1}: a unit must be shorter than {MAX_LINE_BYTES} bytes; "
                "give text with one pair in each unit"
            )
        block = self.stream.read(n_bytes)
        self.n_bytes += len(block)
        return block


def _units(events: Iterator[tuple[str, Element]]) -> Iterator[Element]:
    body: Element | None = None
    for event, element in events:
        if event == "start" and _tag(element) == "body":
            body = element
        elif event == "end" and _tag(element) == "tu":
            yield element
            if body is not None:
                body.clear()  # frees the units that were read


def _sentences(unit: Element) -> list[tuple[str, str]]:
    """Return the languages and sentences of a unit."""
    sentences: list[tuple[str, str]] = []
    for variant in unit:
        if _tag(variant) == "tuv":
            lang = variant.get(XML_LANG) or variant.get("lang") or ""
            sentences += [(lang.lower(), _text(segment)) for segment in variant if _tag(segment) == "seg"]
    return sentences


def _reported_sides(
    sentences: list[tuple[str, str]], src_lang: str, tgt_lang: str, where: str, report: Callable[[str], None] | None
) -> tuple[str, str]:
    try:
        return _tmx_sides(sentences, src_lang, tgt_lang, where)
    except ValueError as error:
        if report is None:
            raise
        report(str(error))
        return "", ""


def _tmx_sides(sentences: list[tuple[str, str]], src_lang: str, tgt_lang: str, where: str) -> tuple[str, str]:
    if (src_lang, tgt_lang) == UNNAMED:
        first, second, *_ = [*(text for _, text in sentences), "", ""]
        return first, second
    sides = [
        next((text for lang, text in sentences if _is_language(lang, want)), None) for want in (src_lang, tgt_lang)
    ]
    if sides == [None, None]:
        langs = ", ".join(lang or "none" for lang, _ in sentences)
        raise ValueError(
            f"{where}: a unit must have the languages of data.src_lang and data.tgt_lang, {src_lang} and {tgt_lang}, "
            f"got {langs or 'no sentences'}"
        )
    return sides[0] or "", sides[1] or ""


def _is_language(lang: str, want: str) -> bool:
    """Tell whether a tag such as zh-hans-cn or en_GB is of a language."""
    return lang.replace("_", "-").startswith(want.lower().replace("_", "-") + "-") or lang == want.lower()


def _text(segment: Element) -> str:
    """Return the text of an element, but for codes; elements may be nested more deeply than Python's calls."""
    texts: list[str] = []
    rest: list[Element | str] = [segment]
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            texts.append(one)
            continue
        texts.append(one.text or "")
        for child in reversed(one):
            rest.append(child.tail or "")
            if _tag(child) not in CODES:
                rest.append(child)
    return "".join(texts)


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2]


FORMATS = {
    ".tsv": lambda source, src_lang, tgt_lang: read_tsv(source),
    ".txt": lambda source, src_lang, tgt_lang: read_tsv(source),
    ".jsonl": read_json_lines,
    ".json": read_json_lines,
    ".tmx": read_tmx,
}


def read_pairs(sources: Sequence[str], src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Yield the pairs of all sources in order, normalised; a source is a file, two files joined by a comma, or `-`."""
    check_sources(sources)
    for source in sources:
        files = split_source(source)
        if len(files) == 2:
            yield from read_aligned(*files)
        else:
            yield from FORMATS[_format(source)](source, src_lang, tgt_lang)


def check_sources(sources: Sequence[str]) -> None:
    """Raise ValueError for a source that is missing or of an unknown format, before anything is read."""
    for source in sources:
        files = split_source(source)
        for path in files:
            if path != "-":
                check_file(path)
        if len(files) == 1:
            _format(source)


def split_source(source: str) -> tuple[str, ...]:
    """Return the one file of a source, or the two that are joined by a comma."""
    if "," not in source or Path(source).exists():
        return (source,)
    files = tuple(part.strip() for part in source.split(","))
    if len(files) != 2 or not all(files) or "-" in files:
        raise ValueError(f"{source}: a comma must join two files, source and target, got {', '.join(files)!r}")
    return files


def _format(source: str) -> str:
    if source == "-":
        return ".tsv"
    suffix = format_suffix(source)
    if suffix not in FORMATS:
        raise ValueError(
            f"{source}: {unknown(suffix, list(FORMATS), 'extension')}, each also with {', '.join(COMPRESSED)}; "
            "two aligned files of any extension are joined by a comma"
        )
    return suffix


BLOCK = 1 << 20  # bytes read at once


@dataclass(frozen=True)
class Document:
    """A text without a translation, the file and line it comes from, and the index of its source."""

    text: str
    where: str
    origin: int = 0


def read_blocks(source: str) -> Iterator[str]:
    """Yield a file's text in blocks, unchanged but for a byte-order mark."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with open_bytes(source) as stream:
        try:
            yield from (decoder.decode(block) for block in iter(partial(stream.read, BLOCK), b""))
            yield decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            wrong = error.object[error.start : error.start + 4]
            raise ValueError(f"{source}: text must be UTF-8, got {wrong!r}; save or convert it as UTF-8") from error


def read_documents(sources: Sequence[str], columns: Sequence[int]) -> Iterator[Document]:
    """Yield a document for each line of the sources; its columns, all or those named, become lines."""
    for origin, source in enumerate(sources):
        for number, line in enumerate(read_lines(source), start=1):
            where = f"{source}, line {number}"
            yield Document("\n".join(_select_columns(line.split("\t"), columns, where)), where, origin)


def _select_columns(cells: list[str], columns: Sequence[int], where: str) -> list[str]:
    if not columns or cells == [""]:
        return cells
    if max(columns) > len(cells):
        raise ValueError(
            f"{where}: data.columns must be columns of every line, got {max(columns)} and a line with {len(cells)}"
        )
    return [cells[column - 1] for column in columns]


COLUMNS = (".tsv", ".txt")


def read_sentences(sources: Sequence[str], src_lang: str, tgt_lang: str) -> Iterator[str]:
    """Yield the sentences of both sides of JSON lines and TMX, and of all columns of any other file."""
    for source in sources:
        if format_suffix(source) in FORMATS and format_suffix(source) not in COLUMNS:
            for pair in read_pairs((source,), src_lang, tgt_lang):
                yield from (pair.src, pair.tgt)
            continue
        for path in split_source(source):
            for line in read_lines(path):
                yield from map(normalise, line.split("\t"))


def check_excluded_files(sources: Sequence[str]) -> None:
    """Raise ValueError for a missing file."""
    for source in sources:
        for path in split_source(source):
            if path != "-":
                check_file(path)
