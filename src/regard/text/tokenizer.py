"""Strings to ids of subword pieces, and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from regard.text.characters import Characters, is_characters
from regard.text.model_file import read_model
from regard.text.pair import normalise
from regard.text.spans import place_pieces
from regard.text.whole import whole_file

Side = Literal["src", "tgt"]
Ids = Sequence[int] | NDArray[np.integer]
JOINT = "tokenizer.model"
SEPARATE = ("tokenizer.src.model", "tokenizer.tgt.model")
FEW = 32  # texts


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """SentencePiece models for the two sides, one and the same where the vocabulary is joint; or characters.

    Text is normalised on the way in, so `decode(encode(text, side), side) == normalise(text)` wherever no piece is
    unknown; with byte fallback none is. Characters take it as it is, and give just that back. Beginnings and ends of
    sentences are not added here.
    """

    models: tuple[bytes, ...]  # as SentencePiece writes them, or `learn_characters`: one for both sides, or two

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
        """Tells whether both sides share one vocabulary."""
        return len(self.models) == 1

    @property
    def exact(self) -> bool:
        """Tells whether pieces are characters, so that text is not normalised."""
        return is_characters(self.models[0])

    @property
    def symbols(self) -> set[str]:
        """Names the pieces of both sides that are never split."""
        if self.exact:
            return set()
        return set.intersection(*(set(read_model(model).symbols) for model in self.models))

    def vocab_size(self, side: Side) -> int:
        """Gives the number of ids of a side."""
        return self._side(side).vocab_size()

    def encode(self, text: str, side: Side) -> list[int]:
        """Cuts a text into its likeliest pieces."""
        return self._side(side).encode(self._plain(text))

    def encode_batch(self, texts: Iterable[str], side: Side) -> list[list[int]]:
        """Cuts many texts on all cores, and few one after another: threads take longer to start than those to cut."""
        cutter, plain = self._side(side), [self._plain(text) for text in texts]
        return cutter.encode(plain) if len(plain) > FEW else [cutter.encode(text) for text in plain]

    def decode(self, ids: Ids, side: Side = "tgt") -> str:
        """Puts pieces together; padding, beginnings and ends vanish, an unknown piece is shown as ⁇."""
        return self._side(side).decode(self._checked(ids, side))

    def pieces(self, ids: Ids, side: Side) -> list[str]:
        """Names the piece of each id; ▁ is a space."""
        return self._side(side).id_to_piece(self._checked(ids, side))

    def spans(self, text: str, side: Side) -> list[tuple[int, int]]:
        """Tells from which character of the normalised text up to which each piece stands that `encode` gives.

        A piece that is a space alone goes with the character after it, as do all bytes of a character.
        """
        if self.exact:
            return self._side(side).spans(text)
        plain = normalise(text)
        return place_pieces(self._side(side).encode(plain, out_type="serialized_proto"), plain)

    def save(self, folder: Path) -> None:
        """Writes one file for a joint vocabulary, or two."""
        names = (JOINT,) if self.joint else SEPARATE
        for name, model in zip(names, self.models, strict=True):
            with whole_file(folder / name) as draft:
                draft.write_bytes(model)
        for name in {JOINT, *SEPARATE} - set(names):
            (folder / name).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        """Reads what `save` wrote."""
        names = (JOINT,) if (folder / JOINT).exists() else SEPARATE
        models = tuple(_read(folder / name) for name in names)
        return cls(models)

    def _plain(self, text: str) -> str:
        return text if self.exact else normalise(text)

    def _side(self, side: Side) -> Any:
        return self._processors[side]  # pyright: ignore[reportAttributeAccessIssue]

    def _checked(self, ids: Ids, side: Side) -> list[int]:
        plain, size = [int(i) for i in ids], self.vocab_size(side)
        if wrong := [i for i in plain if not 0 <= i < size]:
            raise ValueError(f"ids must lie in 0 … {size - 1}, got {wrong[0]}")
        return plain


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"{path}: no such file; a tokenizer is {JOINT}, or {' and '.join(SEPARATE)}")
    model = path.read_bytes()
    try:
        _processor(model)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return model


def _processor(model: bytes) -> sentencepiece.SentencePieceProcessor | Characters:
    if is_characters(model):
        return Characters(model)
    try:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model) if model else None
    except RuntimeError as error:
        raise ValueError(f"a tokenizer must be a whole SentencePiece model, got {len(model)} other bytes") from error
    if processor is None:
        raise ValueError("a tokenizer must be a whole SentencePiece model, got an empty file")
    found = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    expected = [Tokenizer.pad_id, Tokenizer.unk_id, Tokenizer.bos_id, Tokenizer.eos_id]
    if found != expected:
        raise ValueError(f"the ids of padding, unknown, beginning and end must be {expected}, got {found}")
    return processor
