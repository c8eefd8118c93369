"""Pieces with another program's numbers: SentencePiece or a tokenizer.json cuts, and a list says which id each has."""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

import sentencepiece

from regard.data.model_file import piece_spans, strip_space
from regard.extras import needed_by

N_SPECIAL, UNKNOWN = 4, 1  # padding, unknown, BOS and EOS come first
JSON = "json"  # in the place of a side: a tokenizer.json, which cuts both
LONE_SURROGATES = re.compile("[\ud800-\udfff]")
SURFACE = " ⁇ "  # of an unknown piece, as SentencePiece writes it
Side = Literal["src", "tgt"]


@dataclass(frozen=True)
class PieceTable:
    """What a file holds: the piece of each id, what cuts a text of each side, and how languages are named to a model.

    `silent` are ids without a text of their own, such as special tokens; `prefix` is put before each text.
    `languages` are the ids of languages by their codes. The one of the two that `marked` names is put before each
    source instead; where that is the source's, targets begin with theirs. A text that begins with a code `>>…<<` has
    named it itself, where `coded`. What was cut by one side's model may be joined by the other's: `joiner`.
    """

    pieces: Sequence[str]
    cutters: Mapping[str, bytes]  # SentencePiece models by the side that they cut, or one tokenizer.json for both
    joiner: str | None = None  # the side whose model joins pieces; each its own if None
    silent: Sequence[int] = ()
    prefix: Sequence[int] = ()
    languages: Mapping[str, int] = field(default_factory=dict)
    marked: str | None = None
    coded: bool = False

    def dump(self) -> bytes:
        """Return the content of the file."""
        cutters = {side: b64encode(model).decode("ascii") for side, model in self.cutters.items()}
        rest: dict[str, Any] = {name: getattr(self, name) for name in ("joiner", "languages", "marked", "coded")}
        lists = {name: list(getattr(self, name)) for name in ("pieces", "silent", "prefix")}
        table = {**lists, **rest, "cutters": cutters}
        return json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def parse_table(model: bytes) -> PieceTable:
    """Read a file; raise ValueError for what is none."""
    try:
        table: dict[str, Any] = json.loads(model)
        cutters = {str(side): b64decode(text, validate=True) for side, text in table.pop("cutters").items()}
        made = PieceTable(cutters=cutters, **table)
        ids = [*made.silent, *made.prefix, *made.languages.values()]
        wrong = [i for i in ids if type(i) is not int or not 0 <= i < len(made.pieces)]
        if wrong or not all(type(piece) is str for piece in made.pieces) or not cutters:
            raise ValueError(f"ids must lie below the number of pieces, {len(made.pieces)}, got {wrong[:1]}")
        return made
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"a table of pieces must be a complete JSON file, got {error!r:.200}") from error


class PieceProcessor:
    """One side of a table, with the interface of SentencePiece's processors; text is cut as it is given."""

    def __init__(self, table: PieceTable, side: Side, languages: tuple[str, str] | None = None):
        self.table, self.side = table, side
        words = ((piece, i) for i, piece in enumerate(table.pieces) if i >= N_SPECIAL)
        silent = set(table.silent) - set(table.languages.values())
        self.ids = {piece: i for piece, i in words if i not in silent}
        self.silent = frozenset(table.silent) | (frozenset(range(N_SPECIAL)) - {UNKNOWN})
        reads, writes = languages or ("", "")
        own = {"src": reads, "tgt": writes}
        marked = table.languages.get(own.get(table.marked or "", ""))
        self.forced_bos = table.languages.get(writes) if table.marked == "src" else None
        first = marked if side == "src" else self.forced_bos
        self.prefix = list(table.prefix) if first is None else [first]
        if side == "src":
            _ = self.cutter  # which every text needs; the other one's is for prefixes and training

    @cached_property
    def cutter(self) -> Any:
        return open_cutter(self.table, self.side)

    @cached_property
    def joiner(self) -> Any:
        side = self.table.joiner or self.side
        return self.cutter if side == self.side else open_cutter(self.table, side)

    def vocab_size(self) -> int:
        return len(self.table.pieces)

    def encode(self, text: str | Sequence[str]) -> Any:
        """Return the ids of a text, or of each of several."""
        if isinstance(text, str):
            code, rest = self._part(text)
            return self._numbers(code, self.cutter.encode(rest, out_type=str))
        parted = [self._part(each) for each in text]
        cut = self.cutter.encode([rest for _, rest in parted], out_type=str)
        return [self._numbers(code, pieces) for (code, _), pieces in zip(parted, cut, strict=True)]

    def _part(self, text: str) -> tuple[str, str]:
        """Part a code at the beginning from the text after it."""
        text = text if text.isascii() else LONE_SURROGATES.sub("?", text)
        end = text.find("<<") if self.table.coded and text.startswith(">>") else -1
        return ("", text) if end < 0 else (text[: end + 2], text[end + 2 :])

    def _numbers(self, code: str, pieces: Sequence[str]) -> list[int]:
        find = self.ids.get
        ids = [find(piece, UNKNOWN) for piece in pieces]
        if code:
            return [find(code, UNKNOWN), *ids]
        return [*self.prefix, *ids] if ids else ids

    def decode(self, ids: Sequence[int]) -> str:
        """Join pieces; special ids vanish, but an unknown piece becomes ⁇."""
        pieces = self.table.pieces
        said = [SURFACE if i == UNKNOWN else pieces[i] for i in ids if i not in self.silent]
        return self.joiner.decode_pieces(said).replace("▁", " ").strip()

    def id_to_piece(self, ids: Sequence[int]) -> list[str]:
        """Return the piece of each id."""
        return [self.table.pieces[i] for i in ids]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each id's characters, without spaces; a piece that has none gets the next character's."""
        code, rest = self._part(text)
        encoded = self.cutter.encode(rest, out_type="serialized_proto")
        cut = encoded if isinstance(encoded, list) else piece_spans(encoded, rest)
        first = [(0, len(code))] if code else [(0, min(1, len(text)))] * (len(self.prefix) if cut else 0)
        return first + [(start + len(code), stop + len(code)) for start, stop in cut]


class JsonModel:
    """A `tokenizer.json` as SentencePiece's processors are used here: Hugging Face's tokenizers cut and join."""

    def __init__(self, content: bytes):
        with needed_by("a model with a tokenizer.json"):
            library = import_module("tokenizers")
        try:
            self.model = library.Tokenizer.from_str(content.decode())
        except Exception as error:  # which is all that the library raises
            raise ValueError(f"a tokenizer.json must be complete, got {str(error)[:120]}") from error
        self.model.encode_special_tokens = True  # what looks like a special token in a text is text
        self.model.no_truncation()
        self.model.no_padding()

    def encode(self, text: str | Sequence[str], out_type: Any) -> Any:
        """Return the pieces of a text, or of each of several; or their spans."""
        if not isinstance(text, str):
            return [each.tokens for each in self.model.encode_batch(text, add_special_tokens=False)]
        encoded = self.model.encode(text, add_special_tokens=False)
        return encoded.tokens if out_type is str else [strip_space(text, *span) for span in encoded.offsets]

    def decode_pieces(self, pieces: Sequence[str]) -> str:
        """Join pieces; what is none of them vanishes."""
        ids = [self.model.token_to_id(piece) for piece in pieces]
        return self.model.decode([i for i in ids if i is not None], skip_special_tokens=False)


def open_cutter(table: PieceTable, side: str) -> Any:
    """Open what cuts the texts of a side."""
    return JsonModel(table.cutters[JSON]) if JSON in table.cutters else open_model(table.cutters[side])


def open_model(model: bytes) -> Any:
    """Open a SentencePiece model; raise ValueError for what is none."""
    try:
        if not model:
            raise RuntimeError("an empty file")
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise ValueError(f"a SentencePiece model must be complete, got {len(model)} other bytes") from error


def both_sides(models: Sequence[bytes], languages: tuple[str, str] | None) -> tuple[PieceProcessor, PieceProcessor]:
    """Return what reads and what writes, of one table for both or of two."""
    tables = [parse_table(model) for model in models]
    return PieceProcessor(tables[0], "src", languages), PieceProcessor(tables[-1], "tgt", languages)
