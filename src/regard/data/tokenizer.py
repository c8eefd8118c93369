"""Strings <-> ids: SentencePiece and characters, with the span of each token."""

import json
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import sentencepiece

from regard.atomic import atomic_file
from regard.data.files import MIB, read_whole
from regard.data.normalise import Side, normalise, simplify
from regard.shapes import Array
from regard.threads import COMPILED_CALLS

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
    return [_strip_space(text, places[piece.get(BEGIN, 0)], places[piece.get(END, 0)]) for piece in pieces]  # pyright: ignore


def _strip_space(text: str, start: int, stop: int) -> tuple[int, int]:
    while start < stop and text[start].isspace():
        start += 1
    while start < stop and text[stop - 1].isspace():
        stop -= 1
    return (start, stop) if start < stop else (start, min(start + 1, len(text)))


SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN = 1
VISIBLE = {" ": "▁", "\n": "⏎", "\t": "⇥"}  # names of invisible characters
MARK = b'{"characters"'  # how a character model file begins; SentencePiece's begin with a line feed


class CharacterProcessor:
    """A vocabulary of single characters, and of bytes for all others if it has byte fallback.

    The first four ids are padding, unknown, BOS and EOS. The interface is that of SentencePiece's processors.
    """

    def __init__(self, model: bytes):
        table = _read_characters(model)
        self.characters: list[str] = table["characters"]
        self.byte_fallback: bool = table["bytes"]
        self.first_byte = len(SPECIAL)
        self.first = self.first_byte + 256 * self.byte_fallback
        self.ids = {character: self.first + n for n, character in enumerate(self.characters)}

    def vocab_size(self) -> int:
        return self.first + len(self.characters)

    def encode(self, text: str | Sequence[str]) -> Any:
        """Return the ids of a text, or of each of several."""
        if not isinstance(text, str):
            return [self.encode(each) for each in text]
        ids, find = [], self.ids.get
        for character in text:
            known = find(character)
            ids += self._fallback(character) if known is None else (known,)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Join characters; special ids vanish, but an unknown character becomes ⁇."""
        return b"".join(self._bytes(i) for i in ids).decode("utf-8", "replace")

    def id_to_piece(self, ids: Sequence[int]) -> list[str]:
        """Return the name of each id; ▁ is a space and ⏎ the end of a line."""
        return [self._piece(i) for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each id's character; all bytes of a character have its span."""
        return [(n, n + 1) for n, character in enumerate(text) for _ in self.encode(character)]

    def _fallback(self, character: str) -> Sequence[int]:
        if not self.byte_fallback:
            return (UNKNOWN,)
        return [self.first_byte + byte for byte in character.encode("utf-8", "surrogatepass")]

    def _bytes(self, i: int) -> bytes:
        if i >= self.first:
            return self.characters[i - self.first].encode("utf-8")
        if i >= self.first_byte:
            return bytes([i - self.first_byte])
        return "⁇".encode() if i == UNKNOWN else b""

    def _piece(self, i: int) -> str:
        if i < self.first:
            return SPECIAL[i] if i < self.first_byte else f"<0x{i - self.first_byte:02X}>"
        character = self.characters[i - self.first]
        return VISIBLE.get(character, character)


def train_characters(texts: Iterable[str], vocab_size: int, byte_fallback: bool) -> bytes:
    """Return a model of the most frequent characters, `vocab_size` ids in all, with bytes for others if wanted."""
    counts = Counter(_characters(texts))
    room = vocab_size - len(SPECIAL) - 256 * byte_fallback
    if room < 1:
        raise ValueError(
            f"text.vocab_size must exceed the {vocab_size - room} reserved ids, got {vocab_size}; raise it"
        )
    # By count, then by character: independent of the order of the text.
    commonest = sorted(counts, key=lambda character: (-counts[character], character))[:room]
    return json.dumps({"characters": sorted(commonest), "bytes": byte_fallback}).encode()


def is_characters(model: bytes) -> bool:
    return model.startswith(MARK)


def _characters(texts: Iterable[str]) -> Iterator[str]:
    """Yield all characters but lone surrogates."""
    return (character for text in texts for character in text if not "\ud800" <= character <= "\udfff")


def _read_characters(model: bytes) -> dict[str, Any]:
    try:
        table = json.loads(model)
        if not all(isinstance(each, str) and len(each) == 1 for each in table["characters"]):
            raise ValueError("a list of single characters is expected")
        twice = [each for each, n in Counter(table["characters"]).items() if n > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} has two ids")
        return {"characters": list(table["characters"]), "bytes": bool(table["bytes"])}
    except RecursionError as error:
        raise ValueError("a character tokenizer must be a table of characters, got JSON nested too deeply") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"a character tokenizer must be a complete JSON file, got {error!r}") from error


Ids = Sequence[int] | Array
JOINT = "tokenizer.model"
SEPARATE = ("tokenizer.src.model", "tokenizer.tgt.model")
TOKENIZER_FILES = (JOINT, *SEPARATE)
MIN_BATCH = 32  # texts
LARGEST = 256 * MIB  # bytes of a file: a vocabulary of a million pieces takes a tenth of it


@dataclass(frozen=True, eq=False, repr=False)
class Tokenizer:
    """SentencePiece models for the two sides, one for both if the vocabulary is joint; or characters.

    Text is normalised before encoding, so `decode(encode(text, side), side) == normalise(text)` if no piece is
    unknown, which byte fallback ensures. Characters encode and decode text unchanged. BOS and EOS are not added here.
    """

    models: tuple[bytes, ...]  # as SentencePiece writes them, or `learn_characters`: one for both sides, or two
    simplified: frozenset[Side] = frozenset()  # sides on which Traditional Chinese is read as Simplified

    pad_id: ClassVar[int] = 0
    unk_id: ClassVar[int] = 1
    bos_id: ClassVar[int] = 2
    eos_id: ClassVar[int] = 3

    def __post_init__(self) -> None:
        assert len(self.models) in {1, 2}, "a tokenizer has one model or two"
        processors = [_processor(model) for model in self.models]
        object.__setattr__(self, "_processors", {"src": processors[0], "tgt": processors[-1]})

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return len(self.models) == 1

    @property
    def exact(self) -> bool:
        """Whether pieces are characters, so that text is not normalised."""
        return is_characters(self.models[0])

    @property
    def symbols(self) -> set[str]:
        """The pieces of both sides that are never split."""
        if self.exact:
            return set()
        return set.intersection(*(set(parse_model(model).symbols) for model in self.models))

    def vocab_size(self, side: Side) -> int:
        with COMPILED_CALLS:
            return self._processor(side).vocab_size()

    def encode(self, text: str, side: Side) -> list[int]:
        """Return the ids of the most probable segmentation."""
        plain = self._normalise(text, side)
        with COMPILED_CALLS:
            return self._processor(side).encode(plain)

    def encode_batch(self, texts: Iterable[str], side: Side) -> list[list[int]]:
        """Encode many texts on all cores, and few one by one: starting threads would take longer."""
        cutter, plain = self._processor(side), [self._normalise(text, side) for text in texts]
        with COMPILED_CALLS:
            return cutter.encode(plain) if len(plain) > MIN_BATCH else [cutter.encode(text) for text in plain]

    def decode(self, ids: Ids, side: Side = "tgt") -> str:
        """Join pieces; padding, BOS and EOS vanish, an unknown piece becomes ⁇."""
        checked = self._check_ids(ids, side)
        with COMPILED_CALLS:
            return self._processor(side).decode(checked)

    def pieces(self, ids: Ids, side: Side) -> list[str]:
        """Return the piece of each id; ▁ is a space."""
        checked = self._check_ids(ids, side)
        with COMPILED_CALLS:
            return self._processor(side).id_to_piece(checked)

    def spans(self, text: str, side: Side) -> list[tuple[int, int]]:
        """Return the character span in the normalised text of each piece that `encode` returns.

        A piece that is only a space gets the span of the next character; all bytes of a character have its span.
        """
        plain = self._normalise(text, side)
        if self.exact:
            return self._processor(side).spans(plain)
        with COMPILED_CALLS:
            encoded = self._processor(side).encode(plain, out_type="serialized_proto")
        return piece_spans(encoded, plain)

    def __repr__(self) -> str:
        kind = "characters" if self.exact else "SentencePiece"
        sizes = " and ".join(f"{self.vocab_size(side):,}" for side in ("src", "tgt")[: len(self.models)])
        return f"Tokenizer({kind}, {sizes} pieces)"

    def save(self, folder: Path) -> None:
        """Write one file for a joint vocabulary, or two."""
        names = (JOINT,) if self.joint else SEPARATE
        for name, model in zip(names, self.models, strict=True):
            with atomic_file(folder / name) as draft:
                draft.write_bytes(model)
        for name in set(TOKENIZER_FILES) - set(names):
            (folder / name).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path, simplified: frozenset[Side] = frozenset()) -> "Tokenizer":
        names = (JOINT,) if (folder / JOINT).exists() else SEPARATE
        models = tuple(_read(folder / name) for name in names)
        try:
            return cls(models, simplified)
        except ValueError as error:
            raise ValueError(f"{_first_bad(folder, names, models)}: {error}") from error

    def _normalise(self, text: str, side: Side) -> str:
        plain = text if self.exact else normalise(text)
        return simplify(plain) if side in self.simplified else plain

    def _processor(self, side: Side) -> Any:
        return self._processors[side]  # pyright: ignore[reportAttributeAccessIssue]

    def _check_ids(self, ids: Ids, side: Side) -> list[int]:
        plain, size = [int(i) for i in ids], self.vocab_size(side)
        if wrong := [i for i in plain if not 0 <= i < size]:
            raise ValueError(f"ids must lie in 0 … {size - 1}, got {wrong[0]}")
        return plain


def _read(path: Path) -> bytes:
    try:
        model = read_whole(path, LARGEST)
    except OSError as error:
        missing = f"no such file; a tokenizer is {JOINT}, or {' and '.join(SEPARATE)}"
        reason = missing if isinstance(error, FileNotFoundError) else f"this file cannot be read ({error.strerror})"
        raise ValueError(f"{path}: {reason}") from error
    return model


def _first_bad(folder: Path, names: Sequence[str], models: Sequence[bytes]) -> Path:
    """Name the file of the first model that cannot be opened; opening each is slow, so it is done after a failure."""
    for name, model in zip(names, models, strict=True):
        try:
            _processor(model)
        except ValueError:
            return folder / name
    return folder


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor | CharacterProcessor:
    if is_characters(model):
        return CharacterProcessor(model)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model) if model else None
    except RuntimeError as error:
        raise ValueError(f"a tokenizer must be a complete SentencePiece model, got {len(model)} other bytes") from error
    if processor is None:
        raise ValueError("a tokenizer must be a complete SentencePiece model, got an empty file")
    ids = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    expected = [Tokenizer.pad_id, Tokenizer.unk_id, Tokenizer.bos_id, Tokenizer.eos_id]
    if ids != expected:
        raise ValueError(f"the ids of padding, unknown, BOS and EOS must be {expected}, got {ids}")
    try:
        processor.id_to_piece(list(range(processor.vocab_size())))
    except UnicodeDecodeError as error:
        raise ValueError(f"the pieces of a tokenizer must be UTF-8, got {error.object[:20]!r}") from error
    return processor
