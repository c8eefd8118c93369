"""Pairs of sentences from files of any format."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from regard.config import unknown
from regard.text.aligned import read_aligned
from regard.text.json_lines import read_json_lines
from regard.text.pair import Pair
from regard.text.stream import COMPRESSED, check_file, ending
from regard.text.tmx import read_tmx
from regard.text.tsv import read_tsv

FORMATS = {
    ".tsv": lambda source, src_lang, tgt_lang: read_tsv(source),
    ".txt": lambda source, src_lang, tgt_lang: read_tsv(source),
    ".jsonl": read_json_lines,
    ".json": read_json_lines,
    ".tmx": read_tmx,
}


def read_pairs(sources: Sequence[str], src_lang: str, tgt_lang: str) -> Iterator[Pair]:
    """Reads source after source, normalised and in order; a source is a file, two files joined by a comma, or `-`."""
    check_sources(sources)
    for source in sources:
        files = files_of(source)
        if len(files) == 2:
            yield from read_aligned(*files)
        else:
            yield from FORMATS[_format(source)](source, src_lang, tgt_lang)


def check_sources(sources: Sequence[str]) -> None:
    """Raises ValueError where a source is not there or of no known format, before anything is read."""
    for source in sources:
        files = files_of(source)
        for path in files:
            if path != "-":
                check_file(path)
        if len(files) == 1:
            _format(source)


def files_of(source: str) -> tuple[str, ...]:
    """Gives the one file of a source, or the two that are joined by a comma."""
    if "," not in source or Path(source).exists():
        return (source,)
    files = tuple(part.strip() for part in source.split(","))
    if len(files) != 2 or not all(files) or "-" in files:
        raise ValueError(f"{source}: a comma must join two files, source and target, got {', '.join(files)!r}")
    return files


def _format(source: str) -> str:
    if source == "-":
        return ".tsv"
    found = ending(source)
    if found not in FORMATS:
        raise ValueError(
            f"{source}: {unknown(found, list(FORMATS), 'ending')}, each also with {', '.join(COMPRESSED)}; "
            "two aligned files of any ending are joined by a comma"
        )
    return found
