"""The pieces that stand in a SentencePiece model file, with their scores and kinds."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5  # wire types of protocol buffers
BPE = 2  # the model's type in the file, where 1 is unigram


class Kind(IntEnum):
    """What a piece is for; the numbers are those of the file."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    SYMBOL = 4  # user-defined: never split
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Piece:
    """A piece; its id is its place in the file. The score is a log-probability, or a merge's rank below zero."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class ModelFile:
    """What a model says of itself."""

    is_bpe: bool
    pieces: list[Piece]

    @property
    def symbols(self) -> list[str]:
        """Names the pieces that are never split."""
        return [piece.text for piece in self.pieces if piece.kind is Kind.SYMBOL]


def read_model(model: bytes) -> ModelFile:
    """Reads a model; the library itself neither tells symbols from other pieces nor says of which type it is."""
    found = [(number, value) for number, value in fields(model) if isinstance(value, bytes)]
    trainer = dict(fields(next(value for number, value in found if number == 2)))
    return ModelFile(trainer.get(3, 1) == BPE, [_piece(value) for number, value in found if number == 1])


def _piece(message: bytes) -> Piece:
    found = dict(fields(message))
    text, score, kind = found.get(1, b""), found.get(2, bytes(4)), found.get(3, Kind.NORMAL)
    assert isinstance(text, bytes) and isinstance(score, bytes) and isinstance(kind, int), "a piece has three fields"
    return Piece(text.decode(), struct.unpack("<f", score)[0], Kind(kind))


def fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Gives numbers and values of a message's fields: integers as such, all else as bytes."""
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
