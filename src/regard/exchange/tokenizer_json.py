"""Our tokenizers as a `tokenizer.json`, which Hugging Face's tokenizers read: cleaning, folding and cutting.

One step of `normalise` is not said there: of a run of combining marks `normalise` keeps the first thirty.
"""

import io
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from regard.data.normalise import NOISE, simplifying_rules
from regard.data.tokenizer import (
    CharacterProcessor,
    Piece,
    PieceType,
    SentencePieceModel,
    Tokenizer,
    is_characters,
    parse_fields,
    parse_model,
)

Step = dict[str, Any]

SPACE, ESCAPED_SPACE = " ", "\u2581"
WHITE_SPACE = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace())
PLACEHOLDERS = 0xF0000  # the first of the characters for private use that texts hardly have
UNKNOWN = Tokenizer.unk_id


def tokenizer_json(model: bytes, simplified: bool) -> Step:
    """Return the table of a tokenizer that cuts a text, and ends it, as ours does."""
    fold = list(_simplifying()) if simplified else []
    if is_characters(model):
        characters = CharacterProcessor(model)
        vocabulary = _character_pieces(characters)
        core = _bpe(vocabulary, [], characters.byte_fallback)
        return _table(vocabulary[: Tokenizer.eos_id + 1], [], fold, _decoding(False), core)
    parsed, form = parse_model(model), _form(model)
    names = [piece.text for piece in parsed.pieces]
    steps = [*_cleaning(), *fold, *form.charsmap, *_spacing(form.prefixed)]
    fallback = any(piece.kind is PieceType.BYTE for piece in parsed.pieces)
    # A BPE model keeps a symbol whole by a rule of its own; of a unigram model it is a piece with a high score.
    symbols = parsed.symbols if parsed.is_bpe else []
    core = _bpe(names, list(_merges(parsed)), fallback) if parsed.is_bpe else _unigram(parsed, fallback)
    return _table(names[: Tokenizer.eos_id + 1], symbols, steps, _decoding(form.prefixed), core)


def _table(special: list[str], symbols: list[str], steps: list[Step], decoding: list[Step], core: Step) -> Step:
    eos = special[Tokenizer.eos_id]
    vocabulary = core["vocab"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            *(_added(i, name, True) for i, name in enumerate(special)),
            *(_added(vocabulary[name], name, False) for name in symbols),
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps} if steps else None,
        "pre_tokenizer": _split(special),
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": eos, "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {eos: {"id": eos, "ids": [Tokenizer.eos_id], "tokens": [eos]}},
        },
        "decoder": {"type": "Sequence", "decoders": decoding},
        "model": core,
    }


def _added(i: int, name: str, special: bool) -> Step:
    sides = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": i, "content": name, **sides, "special": special}


def _split(special: list[str]) -> Step:
    """Part what only looks like a special token or a byte, so that no text can say one."""
    rest = [name[1:] for name in special if name.startswith("<")]
    pattern = f"<(?={'|'.join([*rest, '0x[0-9A-F]{2}>'])})"
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "MergedWithPrevious", "invert": False}


def _replace(pattern: str, content: str, regex: bool = False) -> Step:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _cleaning() -> list[Step]:
    """Say `normalise`, up to its last step."""
    noise = NOISE.pattern.replace("\ud800-\udfff", "")  # which no text of theirs can hold
    return [_replace(noise, "", regex=True), _replace(ESCAPED_SPACE, "_"), {"type": "NFC"}, *_collapsing()]


def _collapsing() -> list[Step]:
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    return [_replace(f"[{WHITE_SPACE}]+", SPACE, regex=True), strip]


def _spacing(prefixed: bool) -> list[Step]:
    prefix = [{"type": "Prepend", "prepend": ESCAPED_SPACE}] if prefixed else []
    return [*prefix, _replace(SPACE, ESCAPED_SPACE)]


def _simplifying() -> Iterator[Step]:
    """Say `simplify`: words that are read otherwise first, then characters.

    A character that such a word keeps stands as a placeholder until the other characters were replaced.
    """
    characters, words = simplifying_rules()
    kept = sorted({each for word in words.values() for each in word if ord(each) in characters})
    hidden = {each: chr(PLACEHOLDERS + n) for n, each in enumerate(kept)}
    for word in sorted(words, key=len, reverse=True):
        yield _replace(word, "".join(hidden.get(each, each) for each in words[word]))
    rules = {chr(code): simple for code, simple in characters.items()} | {hidden[each]: each for each in kept}
    yield _precompiled(_compile_rules(rules))


def _compile_rules(rules: dict[str, str]) -> bytes:
    """Let SentencePiece compile rules of replacement; it does so while it trains, so it trains on three letters."""
    made = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        path.write_text("".join(f"{ord(old):X}\t{ord(new):X}\n" for old, new in rules.items()), encoding="ascii")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c"]),
            model_writer=made,
            vocab_size=8,
            model_type="char",
            hard_vocab_limit=False,
            normalization_rule_tsv=str(path),
            minloglevel=2,
        )
    return _fields(made.getvalue(), NORMALIZER)[CHARSMAP]  # pyright: ignore[reportReturnType]


TRAINER, NORMALIZER = 2, 3  # fields of a SentencePiece model
CHARSMAP, PREFIX = 2, 3  # of its normalizer
SUFFIX = 24  # of its trainer: spaces end words instead of beginning them


def _fields(model: bytes, number: int) -> dict[int, bytes | int]:
    return next((dict(parse_fields(value)) for n, value in parse_fields(model) if n == number), {})  # pyright: ignore


@dataclass(frozen=True)
class _Form:
    """How a SentencePiece model changes a text before it cuts it."""

    charsmap: list[Step]
    prefixed: bool


def _form(model: bytes) -> _Form:
    if _fields(model, TRAINER).get(SUFFIX):
        raise ValueError(
            "a tokenizer.json must have spaces before words, got a model with treat_whitespace_as_suffix: "
            "train a tokenizer without it"
        )
    normalizer = _fields(model, NORMALIZER)
    charsmap: Any = normalizer.get(CHARSMAP, b"")
    return _Form([_precompiled(charsmap), *_collapsing()] if charsmap else [], bool(normalizer.get(PREFIX, 1)))


def _precompiled(charsmap: bytes) -> Step:
    return {"type": "Precompiled", "precompiled_charsmap": b64encode(charsmap).decode()}


def _decoding(prefixed: bool) -> list[Step]:
    strip = [{"type": "Strip", "content": SPACE, "start": 1, "stop": 0}] if prefixed else []
    spaces = [_replace(ESCAPED_SPACE, SPACE)] if prefixed else []
    return [*spaces, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]


def _unigram(model: SentencePieceModel, byte_fallback: bool) -> Step:
    scores = [piece.score for piece in model.pieces if piece.kind is PieceType.NORMAL]
    lowest, highest = min(scores), max(scores)
    vocabulary = [[piece.text, _score(piece, lowest, highest)] for piece in model.pieces]
    return {"type": "Unigram", "unk_id": UNKNOWN, "vocab": vocabulary, "byte_fallback": byte_fallback}


def _score(piece: Piece, lowest: float, highest: float) -> float:
    """Return the score with which SentencePiece weighs a piece; what is never cut from a text gets the lowest."""
    if piece.kind is PieceType.SYMBOL:
        return len(piece.text.encode()) * highest - 0.1  # as in its unigram_model.cc
    return piece.score if piece.kind is PieceType.NORMAL else lowest


def _bpe(names: Sequence[str], merges: list[list[str]], byte_fallback: bool) -> Step:
    return {
        "type": "BPE",
        "vocab": {name: i for i, name in enumerate(names)},
        "merges": merges,
        "unk_token": names[UNKNOWN],
        "fuse_unk": True,
        "byte_fallback": byte_fallback,
        "ignore_merges": False,
    }


def _merges(model: SentencePieceModel) -> Iterable[list[str]]:
    """Return the pairs that are merged, in their order: all in which a piece can be made of two."""
    names = {piece.text: i for i, piece in enumerate(model.pieces) if piece.kind is PieceType.NORMAL}
    ranked = sorted(names, key=lambda name: (-model.pieces[names[name]].score, names[name]))
    for name in ranked:
        parts = [(name[:at], name[at:]) for at in range(1, len(name))]
        known = [pair for pair in parts if pair[0] in names and pair[1] in names]
        yield from map(list, sorted(known, key=lambda pair: (names[pair[0]], names[pair[1]])))


def _character_pieces(processor: CharacterProcessor) -> list[str]:
    bytes_ = processor.id_to_piece(range(processor.first))
    return [*bytes_, *processor.characters]


def vocabulary(table: Step) -> list[str]:
    """Return the name of each id in a `tokenizer.json`."""
    pieces = table["model"]["vocab"]
    return list(pieces) if isinstance(pieces, dict) else [piece for piece, _ in pieces]
