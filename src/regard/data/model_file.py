"""SentencePiece's model files and messages: what its library does not expose."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5  # wire types of protocol buffers
BPE = 2  # model type in the file; 1 is unigram


class PieceType(IntEnum):
    """The type of a piece, numbered as in the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    SYMBOL = 4  # user-defined: never split
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A piece; its id is its index in the file. The score is a log-probability, or minus the rank of a merge."""

    text: str
    score: float
    kind: PieceType


@dataclass(frozen=True)
class SentencePieceModel:
    """The parts of a SentencePiece model file that the library does not expose."""

    is_bpe: bool
    pieces: list[Piece]

    @property
    def symbols(self) -> list[str]:
        """Return the pieces that are never split."""
        return [piece.text for piece in self.pieces if piece.kind is PieceType.SYMBOL]


def parse_model(model: bytes) -> SentencePieceModel:
    """Parse a model file; the library tells neither its type nor which pieces are symbols."""
    try:
        messages = [(number, value) for number, value in parse_fields(model) if isinstance(value, bytes)]
        trainer = dict(parse_fields(next(value for number, value in messages if number == 2)))
        pieces = [_piece(value) for number, value in messages if number == 1]
    except (StopIteration, IndexError, KeyError, AssertionError, struct.error, ValueError) as error:
        raise ValueError(f"a tokenizer must be a complete SentencePiece model, got a part of it ({error!r})") from error
    return SentencePieceModel(trainer.get(3, 1) == BPE, pieces)


def _piece(message: bytes) -> Piece:
    fields = dict(parse_fields(message))
    text, score, kind = fields.get(1, b""), fields.get(2, bytes(4)), fields.get(3, PieceType.NORMAL)
    assert isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int), "a piece has three fields"
    return Piece(text.decode(), struct.unpack("<f", score)[0], PieceType(kind))


def parse_fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the numbers and values of a protocol buffer's fields: integers as such, all else as bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        size, at = _varint(message, at) if wire == BYTES else ({FIXED_64: 8, FIXED_32: 4}[wire], at)
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


PIECES, BEGIN, END = 2, 4, 5  # fields of SentencePiece's messages; offsets are in bytes


def piece_spans(encoded: bytes, text: str) -> list[tuple[int, int]]:
    """Return the character span of each piece in SentencePiece's message about a text, without spaces.

    A piece without a character of its own, a space or a byte, gets the span of the next character.
    """
    ends = accumulate(len(character.encode()) for character in text)
    places = {0: 0, **{end: i for i, end in enumerate(ends, start=1)}}  # bytes -> characters
    pieces = (dict(parse_fields(value)) for number, value in parse_fields(encoded) if number == PIECES)  # pyright: ignore
    return [strip_space(text, places[piece.get(BEGIN, 0)], places[piece.get(END, 0)]) for piece in pieces]  # pyright: ignore


def strip_space(text: str, start: int, stop: int) -> tuple[int, int]:
    """Return a span without the spaces around it; one of spaces alone gets that of the next character."""
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return (start, stop) if start < stop else (start, min(start + 1, len(text)))
