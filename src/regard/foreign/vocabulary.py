"""Vocabularies of Transformers' models as ours: which of their ids is each of ours, and how text becomes ids."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.checkpoint import CONFIG
from regard.config import choose
from regard.data.pieces import JSON, JsonModel, PieceTable, open_model
from regard.foreign.folder import ForeignFolder
from regard.padding import BOS, EOS, PAD, UNK

OURS = {PAD: "<pad>", UNK: "<unk>", BOS: "<s>", EOS: "</s>"}


@dataclass(frozen=True)
class Numbering:
    """Which of their ids is each of ours, beginning with PAD, UNK, BOS and EOS.

    Where one of theirs may be written by their search, it has an ordinary id here, and ours of that name is a copy that
    is read alone: `unwritten`.
    """

    rows: list[int]
    unwritten: tuple[int, ...]

    def ours(self, theirs: int) -> int:
        """Return our id of one of theirs that may be written."""
        named = [i for i in range(EOS + 1) if self.rows[i] == theirs and i not in self.unwritten]
        return named[0] if named else self.rows.index(theirs, EOS + 1)


@dataclass(frozen=True)
class SpecialIds:
    """The ids of their special tokens, and those that their search never writes."""

    pad: int
    unk: int
    start: int  # of the decoder
    eos: int
    forbidden: Collection[int] = ()


def number(size: int, special: SpecialIds) -> Numbering:
    """Number a vocabulary of so many pieces; a folder that has our ids already keeps them."""
    rows, unwritten = [special.pad, special.unk, special.start, special.eos], []
    taken = {special.eos}
    for ours, theirs in enumerate(rows[:EOS]):
        if theirs in special.forbidden and theirs not in taken:
            taken.add(theirs)
        else:
            unwritten.append(ours)
    return Numbering([*rows, *(i for i in range(size) if i not in taken)], tuple(unwritten))


@dataclass(frozen=True)
class Vocabulary:
    """Both sides of a model: numbers, pieces, and the ids of languages by their codes."""

    src: Numbering
    tgt: Numbering
    models: tuple[bytes, ...]  # of our tokenizer: one for both sides, or two
    languages: Mapping[str, int]
    names_source: bool = False  # whether a source's language is named to the model, and not just the target's


def names_of(numbering: Numbering, pieces: Mapping[int, str]) -> list[str]:
    """Return the name of each of our ids."""
    rest = [pieces.get(i, f"<id {i}>") for i in numbering.rows[EOS + 1 :]]
    return [*OURS.values(), *rest]


def pieces_by_id(folder: ForeignFolder, name: str, size: int) -> dict[int, str]:
    """Read a vocab.json: the piece of each id below the size of the tables."""
    table = folder.json(name)
    found: dict[int, str] = {}
    for piece, i in table.items():
        if type(i) is not int or not 0 <= i < size:
            rule = f"ids must lie in 0 … {size - 1}, as {CONFIG} says"
            raise ValueError(f"{folder.path / name}: {rule}, got {i!r:.40} for {piece!r:.40}: copy the folder again")
        if i in found:
            raise ValueError(
                f"{folder.path / name}: each id must have one piece, got {found[i]!r} and {piece!r} for {i}"
            )
        found[i] = piece
    return found


def find_piece(folder: ForeignFolder, name: str, pieces: Mapping[int, str], piece: str) -> int:
    """Return the id of a piece that must be there."""
    found = next((i for i, each in pieces.items() if each == piece), None)
    if found is None:
        raise ValueError(f"{folder.path / name}: there must be a piece {piece!r}, got {len(pieces)} others")
    return found


def special_name(folder: ForeignFolder, name: str, default: str) -> str:
    """Return the spelling of a special token, which a config gives as a text or as a table."""
    value: Any = folder.tokenizer.get(name, default)
    value = value.get("content", default) if isinstance(value, dict) else value
    return value if isinstance(value, str) else default


def single_id(folder: ForeignFolder, name: str, values: Mapping[str, Any], size: int) -> int | None:
    """Return an id that settings name, None where they name none; a list has just one."""
    value: Any = values.get(name)
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    if value is not None and (type(value) is not int or not 0 <= value < size):
        raise ValueError(f"{folder.path}: {name} must be an id in 0 … {size - 1}, got {value!r:.60}")
    return value


def forbidden_ids(folder: ForeignFolder) -> set[int]:
    """Return the ids that their search never writes; sequences of several are left out."""
    words = folder.generation.get("bad_words_ids") or []
    alone = [word[0] for word in words if isinstance(word, list) and len(word) == 1]
    found = [*alone, *(folder.generation.get("suppress_tokens") or [])]
    if not all(type(i) is int for i in found):
        raise ValueError(f"{folder.path}: bad_words_ids and suppress_tokens must hold ids, got {found!r:.60}")
    return set(found)


def special_ids(folder: ForeignFolder, size: int, unk: int) -> SpecialIds:
    """Return the special ids of a model whose tokenizer reads unknown pieces as `unk`."""
    values = {**folder.config, **{k: v for k, v in folder.generation.items() if v is not None}}
    pad, eos = (single_id(folder, f"{name}_token_id", values, size) for name in ("pad", "eos"))
    start = single_id(folder, "decoder_start_token_id", values, size)
    if pad is None or eos is None:
        raise ValueError(f"{folder.path / CONFIG}: pad_token_id and eos_token_id must be ids, got {pad} and {eos}")
    return SpecialIds(pad, unk, pad if start is None else start, eos, forbidden_ids(folder))


SOURCE, TARGET, PIECES, TARGET_PIECES = "source.spm", "target.spm", "vocab.json", "target_vocab.json"


def marian_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabulary:
    """Read two SentencePiece models, and one or two tables of ids, as MarianTokenizer does."""
    cutters = {"src": folder.bytes(SOURCE), "tgt": folder.bytes(TARGET)}
    for side, name in (("src", SOURCE), ("tgt", TARGET)):
        try:
            open_model(cutters[side])
        except ValueError as error:
            raise ValueError(f"{folder.path / name}: {error}") from error
    named = (("unk_token", "<unk>"), ("eos_token", "</s>"), ("pad_token", "<pad>"))
    unk, eos, pad = (special_name(folder, name, usual) for name, usual in named)
    src_pieces = pieces_by_id(folder, PIECES, sizes[0])
    apart = bool(folder.tokenizer.get("separate_vocabs", False))
    tgt_pieces = pieces_by_id(folder, TARGET_PIECES, sizes[1]) if apart else src_pieces
    special = special_ids(folder, sizes[1], find_piece(folder, PIECES, tgt_pieces, unk) if not apart else 0)
    if apart:
        return _two_tables(folder, cutters, (src_pieces, tgt_pieces), sizes, (unk, eos, pad), special)
    ends = find_piece(folder, PIECES, src_pieces, eos)
    if ends != special.eos or sizes[0] != sizes[1]:
        raise ValueError(f"{folder.path}: sources and targets must end with one id, got {ends} and {special.eos}")
    numbering = number(sizes[0], special)
    silent = sorted({numbering.ours(i) for i, piece in src_pieces.items() if piece in {unk, eos, pad}} - {EOS})
    languages = {
        piece[2:-2]: numbering.ours(i) for i, piece in src_pieces.items() if piece[:2] == ">>" and piece[-2:] == "<<"
    }
    names = names_of(numbering, src_pieces)
    made = PieceTable(names, cutters, "src", silent, (), languages, "tgt", True)
    return Vocabulary(numbering, numbering, (made.dump(),), languages)


def _two_tables(
    folder: ForeignFolder,
    cutters: Mapping[str, bytes],
    pieces: tuple[dict[int, str], dict[int, str]],
    sizes: tuple[int, int],
    names: Sequence[str],
    special: SpecialIds,
) -> Vocabulary:
    """Number each side by itself; what reads has an unknown piece and an end, what writes those of the search."""
    unk, eos, pad = names
    reads, writes = pieces
    ids = {name: find_piece(folder, PIECES, reads, name) for name in (unk, eos)}
    padded = next((i for i, piece in reads.items() if piece == pad), ids[eos])
    src = number(sizes[0], SpecialIds(padded, ids[unk], padded, ids[eos]))
    unknown = next((i for i, piece in writes.items() if piece == unk), special.pad)
    tgt = number(sizes[1], SpecialIds(special.pad, unknown, special.start, special.eos, special.forbidden))
    tables = []
    for side, numbering, named in (("src", src, reads), ("tgt", tgt, writes)):
        silent = sorted({numbering.ours(i) for i, piece in named.items() if piece in names} - {EOS})
        tables.append(PieceTable(names_of(numbering, named), {side: cutters[side]}, None, silent, coded=True))
    return Vocabulary(src, tgt, (tables[0].dump(), tables[1].dump()), {})


JSON_FILE = "tokenizer.json"
LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]{1,3}|__[a-z]{2,3}__")


def json_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabulary:
    """Read a tokenizer.json, which cuts and numbers both sides."""
    content, size = folder.bytes(JSON_FILE), min(sizes)
    try:
        model = JsonModel(content).model
    except ValueError as error:
        raise ValueError(f"{folder.path / JSON_FILE}: {error}") from error
    pieces = {i: piece for piece, i in model.get_vocab(with_added_tokens=True).items() if 0 <= i < size}
    special = special_ids(
        folder, size, find_piece(folder, JSON_FILE, pieces, special_name(folder, "unk_token", "<unk>"))
    )
    numbering = number(size, special)
    marks = {i: token.content for i, token in model.get_added_tokens_decoder().items() if token.special and i < size}
    codes = {i: piece for i, piece in marks.items() if LANGUAGE.fullmatch(piece)}
    around = model.encode("", add_special_tokens=True).ids
    if around[-1:] != [special.eos]:
        rule, ends = f"sources must end with {pieces.get(special.eos)!r}", [pieces.get(i) for i in around]
        raise ValueError(f"{folder.path / JSON_FILE}: {rule}, got {ends}: no model that ends otherwise is supported")
    made = PieceTable(
        names_of(numbering, pieces),
        {JSON: content},
        silent=sorted({numbering.ours(i) for i in marks} - {EOS}),
        prefix=[numbering.ours(i) for i in around[:-1] if i not in codes],
        languages={piece.strip("_"): numbering.ours(i) for i, piece in codes.items()},
        marked="src" if codes else None,
    )
    return Vocabulary(numbering, numbering, (made.dump(),), made.languages, bool(codes))


BPE_MODEL = "sentencepiece.bpe.model"
# In the order of their ids, which come after those of vocab.json: M2M100Tokenizer holds these lists, its files do not.
M2M100_CODES = {
    "m2m100": """af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr
        ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps
        pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu""",
    "wmt21": "en ha is ja cs ru zh de",
}


def m2m100_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabulary:
    """Read one SentencePiece model and a table of ids, after which those of languages come."""
    size, cutter = min(sizes), folder.bytes(BPE_MODEL)
    try:
        open_model(cutter)
    except ValueError as error:
        raise ValueError(f"{folder.path / BPE_MODEL}: {error}") from error
    pieces = pieces_by_id(folder, PIECES, size)
    codes = choose(M2M100_CODES, str(folder.tokenizer.get("language_codes", "m2m100")), "language_codes").split()
    first = len(pieces)
    named = {**pieces, **{first + n: f"__{code}__" for n, code in enumerate(codes) if first + n < size}}
    special = special_ids(folder, size, find_piece(folder, PIECES, pieces, special_name(folder, "unk_token", "<unk>")))
    numbering = number(size, special)
    languages = {code: numbering.ours(first + n) for n, code in enumerate(codes) if first + n < size}
    marks = {i for i, piece in pieces.items() if piece in {"<s>", "</s>", "<pad>", "<unk>"}}
    silent = sorted({*map(numbering.ours, marks), *languages.values()} - {EOS})
    cutters = {"src": cutter, "tgt": cutter}
    made = PieceTable(names_of(numbering, named), cutters, "src", silent, languages=languages, marked="src")
    return Vocabulary(numbering, numbering, (made.dump(),), languages, True)


def read_vocabulary(folder: ForeignFolder, sizes: tuple[int, int]) -> Vocabulary:
    """Read a folder's tokenizer, whatever its form; raise ValueError naming the files that it could be."""
    if folder.has(SOURCE) and folder.has(TARGET):
        return marian_vocabulary(folder, sizes)
    if folder.has(BPE_MODEL) and folder.has(PIECES):
        return m2m100_vocabulary(folder, sizes)
    if folder.has(JSON_FILE):
        return json_vocabulary(folder, sizes)
    forms = f"{SOURCE}, {TARGET} and {PIECES}; {BPE_MODEL} and {PIECES}; or {JSON_FILE}"
    raise ValueError(f"{folder.path}: a tokenizer must be there as {forms}, got none of them: save the tokenizer there")
