"""Pairs from lines of two columns."""

from collections.abc import Iterator

from regard.text.lines import read_lines
from regard.text.pair import Pair, make_pair


def read_tsv(source: str) -> Iterator[Pair]:
    """Reads `source<TAB>target`; columns after the second are ignored, and an empty line is an empty pair."""
    for number, line in enumerate(read_lines(source), start=1):
        where = f"{source}, line {number}"
        columns = line.split("\t", 2)
        if len(columns) < 2 and line.strip():
            raise ValueError(f"{where}: a line must have two columns separated by a tab, got 1: {line[:60]!r}")
        yield make_pair(columns[0], columns[1] if len(columns) > 1 else "", where)
