"""Strings <-> ids: SentencePiece and characters, with the span of each token."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from regard.atomic import atomic_file
from regard.data.files import MIB, read_whole
from regard.data.model_file import Piece as Piece
from regard.data.model_file import PieceType as PieceType
from regard.data.model_file import SentencePieceModel as SentencePieceModel
from regard.data.model_file import parse_fields as parse_fields
from regard.data.model_file import parse_model, piece_spans
from regard.data.normalise import Side, normalise, simplify
from regard.shapes import Array
from regard.threads import COMPILED_CALLS

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
UNKNOWN = 1
VISIBLE = {" ": "▁", "\n": "⏎", "\t": "⇥"}  # names of invisible characters
BORROWED, TABLE_MARK = "regard.data.pieces", b'{"pieces"'  # what reads a table of pieces, and how one begins
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
    unknown, which byte fallback ensures. Characters, and other programs' pieces, encode text unchanged. BOS and EOS are
    not added here.
    """

    models: tuple[bytes, ...]  # as SentencePiece, `learn_characters` or PieceTable write them: one for both, or two
    simplified: frozenset[Side] = frozenset()  # sides on which Traditional Chinese is read as Simplified
    languages: tuple[str, str] | None = None  # which of those that a model of many knows are meant

    pad_id: ClassVar[int] = 0
    unk_id: ClassVar[int] = 1
    bos_id: ClassVar[int] = 2
    eos_id: ClassVar[int] = 3

    def __post_init__(self) -> None:
        assert len(self.models) in {1, 2}, "a tokenizer has one model or two"
        if self.borrowed:  # which few models are: nothing of it is imported for the others
            processors = import_module(BORROWED).both_sides(self.models, self.languages)
        else:
            processors = [_processor(model) for model in self.models]
        object.__setattr__(self, "_processors", {"src": processors[0], "tgt": processors[-1]})

    @property
    def joint(self) -> bool:
        """Whether both sides share one vocabulary."""
        return len(self.models) == 1

    @property
    def exact(self) -> bool:
        """Whether text is cut as it is, without being normalised: into characters, or as another program does it."""
        return is_characters(self.models[0]) or self.borrowed

    @property
    def borrowed(self) -> bool:
        """Whether the pieces have another program's numbers."""
        return self.models[0].startswith(TABLE_MARK)

    @property
    def symbols(self) -> set[str]:
        """The pieces of both sides that are never split."""
        if self.exact:
            return set()
        return set.intersection(*(set(parse_model(model).symbols) for model in self.models))

    @property
    def known_languages(self) -> tuple[str, ...]:
        """The languages of which a text names one to the model, by its id; none for most models."""
        return tuple(self._processor("src").table.languages) if self.borrowed else ()

    @property
    def names_source(self) -> bool:
        """Whether the model is told the language of a source, and not just that of its target."""
        return self.borrowed and self._processor("src").table.marked == "src"

    @property
    def forced_bos(self) -> int | None:
        """The id of the language that targets begin with, in models that say so."""
        return self._processor("tgt").forced_bos if self.borrowed else None

    def check_languages(self) -> None:
        """Raise ValueError where a model must be told two languages and was not."""
        known = self.known_languages
        if self.names_source and not {*(self.languages or ("",))} <= {*known}:
            some = ", ".join(sorted(known)[:12]) + (", …" if len(known) > 12 else "")
            given = " and ".join(self.languages or ("none",))
            raise ValueError(
                f"a model of many languages must be told which two are meant ({some}), got {given}: name them with "
                "--from and --to, or src_lang and tgt_lang"
            )

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
        kind = "borrowed" if self.borrowed else "characters" if self.exact else "SentencePiece"
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
    def load(
        cls, folder: Path, simplified: frozenset[Side] = frozenset(), languages: tuple[str, str] | None = None
    ) -> "Tokenizer":
        names = (JOINT,) if (folder / JOINT).exists() else SEPARATE
        models = tuple(_read(folder / name) for name in names)
        try:
            return cls(models, simplified, languages)
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
            (import_module(BORROWED).parse_table if model.startswith(TABLE_MARK) else _processor)(model)
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
