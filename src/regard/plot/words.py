"""Words as they stand in figures and tables: readable and short."""

import re
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

MARK = "▁"  # sentencepiece's sign for the space before a piece
LONGEST = 16  # columns, of which a Chinese character takes two
# What would break a line, or show nothing at all; a space between words is seen.
_UNSEEN = re.compile(r"^ +| +$|[^\S ]|[\x00-\x1f\x7f\u200b\ufeff]")


def without_marks(pieces: Sequence[str]) -> list[str]:
    """Takes the marks of spaces off the pieces of a sentence, for a reader who knows where words begin."""
    return [piece.replace(MARK, "") or "␣" for piece in pieces]


def readable(word: str) -> str:
    """Gives a word as a label: a mark becomes a dot, what cannot be seen a sign, and what is long loses its end."""
    return shorten(_UNSEEN.sub("␣", word).replace(MARK, "·") or "∅")


def shorten(text: str, most: int = LONGEST) -> str:
    """Cuts a text to a number of columns, the last of them then being `…`."""
    return text if cell_len(text) <= most else set_cell_size(text, most - 1).rstrip() + "…"


def check_words(what: str, words: Sequence[str], n: int, of: str) -> None:
    """Raises ValueError where there is not one word for each row or column, or nothing to draw."""
    if len(words) != n:
        raise ValueError(f"{what} must be as many as the {of}, got {len(words)} and {n}")
    if n == 0:
        raise ValueError(f"a figure needs 1 or more {what}, got 0")
