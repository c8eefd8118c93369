"""Pairs of sentences as models read them: ids, and the joint of words that each piece is part of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.config import choose
from regard.decode.translator import Translator
from regard.text.tokenizer import Side
from regard.text.units import Sentence, join_words, split_pieces, split_words
from regard.trace.joints import join, owners


@dataclass(frozen=True)
class Part:
    """A sentence as one model reads it: ids, and the joint that each is part of."""

    ids: list[int]
    owners: list[int]


@dataclass(frozen=True)
class Half:
    """One side of a pair: its words, those that are joined, and what the models read."""

    sentence: Sentence
    joints: list[range]
    parts: list[Part]


@dataclass(frozen=True)
class Reading:
    """Both sides of a pair as one model reads them."""

    src: Part
    tgt: Part


@dataclass(frozen=True)
class Read:
    """A pair, and how a model and, where there is one, its reverse read it; no readings where one of them cannot."""

    src: Half
    tgt: Half
    readings: list[Reading]


def read_pair(pair: tuple[str, str], models: Sequence[Translator], units: str) -> Read:
    """Cuts a pair into words, and these into the pieces of a model and of its reverse."""
    src, tgt = _half(pair[0], models, ("src", "tgt"), units), _half(pair[1], models, ("tgt", "src"), units)
    fit = all(
        0 < len(part.ids) <= model.max_len
        for half in (src, tgt)
        for model, part in zip(models, half.parts, strict=True)
    )
    forward, *backward = zip(src.parts, tgt.parts, strict=True)
    readings = [Reading(*forward), *(Reading(one, other) for other, one in backward)]
    return Read(src, tgt, readings if fit else [])


def _half(text: str, models: Sequence[Translator], sides: tuple[Side, Side], units: str) -> Half:
    """Cuts one side, which is the source of one of the models and the target of the other."""
    sentence = choose(UNITS, units, "way to find words")(text, models[0], sides[0])
    turned = list(zip(models, sides, strict=False))
    spans = [model.tokenizer.spans(sentence.text, side) for model, side in turned]
    ids = [model.tokenizer.encode(sentence.text, side) for model, side in turned]
    joints = join(sentence.spans, [span for some in spans for span in some])
    parts = [Part(some, owners(joints, sentence.spans, at)) for some, at in zip(ids, spans, strict=True)]
    return Half(sentence, joints, parts)


def _by_character(text: str, model: Translator, side: Side) -> Sentence:
    return split_words(text)


def _by_piece(text: str, model: Translator, side: Side) -> Sentence:
    return split_pieces(text, model.tokenizer.spans(text, side))


def _tokenised(text: str, model: Translator, side: Side) -> Sentence:
    return join_words(text)


UNITS: dict[str, Callable[[str, Translator, Side], Sentence]] = {
    "characters": _by_character,
    "pieces": _by_piece,
    "tokenised": _tokenised,
}
