"""Pieces of a sentence become its words."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.text.units import UNSPACED

MARK = "▁"  # SentencePiece's sign for the space before a piece
BYTE = re.compile(r"<0x([0-9A-F]{2})>")
SPECIAL = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Word:
    """A word, and the places of the pieces that it is made of."""

    text: str
    places: tuple[int, ...]


def group_words(pieces: Sequence[str]) -> list[Word]:
    """Sets pieces together to words.

    A mark begins a word. Between pieces without one there is a border where Chinese and its like stands on either side,
    and before signs that close a word; signs inside one, as in Xi'an, belong to it. Bytes of a character stay together.
    """
    groups: list[list[int]] = []
    for place, piece in enumerate(pieces):
        before = pieces[place - 1] if place else ""
        after = pieces[place + 1] if place + 1 < len(pieces) else ""
        if groups and not _border(before, piece, after):
            groups[-1].append(place)
        else:
            groups.append([place])
    return [Word(_text([pieces[i] for i in group]), tuple(group)) for group in groups]


def _border(before: str, piece: str, after: str) -> bool:
    """Tells whether a word begins with this piece."""
    if before == MARK:
        return False  # a space by itself goes with what follows
    if BYTE.fullmatch(before) and BYTE.fullmatch(piece):
        return _begins_character(piece)
    if piece.startswith(MARK) or SPECIAL.fullmatch(piece) or SPECIAL.fullmatch(before):
        return True
    if UNSPACED.match(piece[:1]) or UNSPACED.match(before[-1:]):
        return True
    if piece[:1].isalnum():
        return not (before[-1:].isalnum() or _inside(before, piece))
    return not _inside(piece, after)


def _inside(sign: str, after: str) -> bool:
    """Tells whether a sign stands inside a word: one that is followed by a letter without a space."""
    joins = sign.strip(MARK) in {"'", "’", "-", "‐", "_", ".", "@", "/"}
    return joins and after[:1].isalnum() and not UNSPACED.match(after[:1])


def _begins_character(piece: str) -> bool:
    """Tells whether a byte is the first of a character in UTF-8."""
    match = BYTE.fullmatch(piece)
    return match is not None and int(match[1], 16) & 0xC0 != 0x80


def _text(pieces: Sequence[str]) -> str:
    if all(BYTE.fullmatch(piece) for piece in pieces):
        return bytes(int(BYTE.fullmatch(piece)[1], 16) for piece in pieces).decode("utf-8", "replace")  # pyright: ignore
    return "".join(pieces).replace(MARK, " ").strip() or "␣"
