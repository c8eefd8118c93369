"""Word boundaries: where a text is cut into words, and words are joined as they are written."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.normalise import SIGNS, is_unspaced, normalise

Span = tuple[int, int]  # characters, start and end

# Marks of Thai and similar scripts that belong to the letter before them.
MARKS = r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3\u3099\u309a"
WORD = re.compile(rf"[{SIGNS}][{MARKS}]*|[^\s{SIGNS}]+")
CLOSING = re.compile(r"[.,;:!?%)\]}…]+|['’](?:s|m|d|t|re|ve|ll)|n['’]t", re.IGNORECASE)
OPENING = re.compile(r"[(\[{$#]")
QUOTE = '"'


@dataclass(frozen=True)
class Sentence:
    """A normalised text and the spans of its words, which cover all of it but the white space."""

    text: str
    spans: tuple[Span, ...]

    @property
    def words(self) -> list[str]:
        return [self.text[start:stop] for start, stop in self.spans]


def split_words(text: str) -> Sentence:
    """Split at spaces; in scripts without spaces each character is a word."""
    text = normalise(text)
    return Sentence(text, tuple(match.span() for match in WORD.finditer(text)))


def split_pieces(text: str, pieces: Sequence[Span]) -> Sentence:
    """Split at spaces; in scripts without spaces each of the given pieces is a word."""
    text = normalise(text)
    inside = {i for start, stop in pieces for i in range(start + 1, stop)}
    spans: list[Span] = []
    for start, stop in split_words(text).spans:
        if start in inside:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return Sentence(text, tuple(spans))


def join_words(line: str) -> Sentence:
    """Take space-separated words and join them as they are written: scripts without spaces, and punctuation, attached.

    A model then reads text as in its training data.
    """
    words = normalise(line).split()
    written, spans, at, quotes = [], [], 0, 0
    for last, word in zip(["", *words], words, strict=False):
        space = " " if last and _needs_space(last, word, quotes % 2 == 1) else ""
        at += len(space)
        spans.append((at, at + len(word)))
        at += len(word)
        quotes += word == QUOTE
        written += (space, word)
    text = "".join(written)
    if normalise(text) != text:  # characters compose across a word boundary: keep the spaces
        text = " ".join(words)
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    return Sentence(text, tuple(spans))


def _needs_space(last: str, word: str, closes: bool) -> bool:
    """Tell whether a space is written between two words; every second straight quote `closes`."""
    if is_unspaced(last[-1]) or is_unspaced(word) or CLOSING.fullmatch(word) or OPENING.fullmatch(last):
        return False
    return not (closes and QUOTE in {last, word})
