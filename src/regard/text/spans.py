"""Where each piece of a sentence stands in it."""

from itertools import accumulate

from regard.text.model_file import fields

PIECES, BEGIN, END = 2, 4, 5  # fields of SentencePiece's messages, places counted in bytes


def place_pieces(encoded: bytes, text: str) -> list[tuple[int, int]]:
    """Reads SentencePiece's message about a text; from which character up to which each piece stands, spaces aside.

    A piece without a character of its own, a space or a byte, goes with the next one.
    """
    ends = accumulate(len(character.encode()) for character in text)
    places = {0: 0, **{end: place for place, end in enumerate(ends, start=1)}}  # bytes -> characters
    pieces = (dict(fields(value)) for number, value in fields(encoded) if number == PIECES)  # pyright: ignore
    return [_own(text, places[piece.get(BEGIN, 0)], places[piece.get(END, 0)]) for piece in pieces]  # pyright: ignore


def _own(text: str, start: int, stop: int) -> tuple[int, int]:
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return (start, stop) if start < stop else (start, min(start + 1, len(text)))
