"""Sentences that are to stay out of training, whatever file they stand in."""

from collections.abc import Iterator, Sequence

from regard.text.corpus import FORMATS, files_of, read_pairs
from regard.text.lines import read_lines
from regard.text.pair import normalise
from regard.text.stream import check_file, ending

COLUMNS = (".tsv", ".txt")


def read_sentences(sources: Sequence[str], src_lang: str, tgt_lang: str) -> Iterator[str]:
    """Gives the sentences of both sides of JSON lines and TMX, and of all columns of any other file."""
    for source in sources:
        if ending(source) in FORMATS and ending(source) not in COLUMNS:
            for pair in read_pairs((source,), src_lang, tgt_lang):
                yield from (pair.src, pair.tgt)
            continue
        for path in files_of(source):
            for line in read_lines(path):
                yield from map(normalise, line.split("\t"))


def check_excluded(sources: Sequence[str]) -> None:
    """Raises ValueError where a file is not there."""
    for source in sources:
        for path in files_of(source):
            if path != "-":
                check_file(path)
