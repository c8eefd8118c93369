"""Pairs from two files whose lines belong together."""

from collections.abc import Iterator
from itertools import zip_longest

from regard.text.lines import read_lines
from regard.text.pair import Pair, make_pair


def read_aligned(src: str, tgt: str) -> Iterator[Pair]:
    """Reads two files side by side; that one has more lines than the other is known only at the end."""
    lines = zip_longest(read_lines(src), read_lines(tgt))
    number = 0
    for number, (a, b) in enumerate(lines, start=1):
        if a is None or b is None:
            longer = number + sum(1 for _ in lines)
            n_src, n_tgt = (number - 1, longer) if a is None else (longer, number - 1)
            raise ValueError(
                f"{src} and {tgt} must have the same number of lines, got {n_src} and {n_tgt}; "
                "line by line they must be translations of each other"
            )
        yield make_pair(a, b, f"{src}, line {number}")
