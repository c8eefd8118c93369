"""Words, tokens, and the word groups that no token crosses."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.config import choose
from regard.data.normalise import Sentence, Span, join_words, split_pieces, split_words
from regard.data.tokenizer import Side
from regard.pipeline.translator import Translator


def word_groups(words: Sequence[Span], pieces: Iterable[Span]) -> list[range]:
    """Return the fewest words that must stay together, in their order: no piece reaches from one range into the next.

    Pieces may be those of several tokenizers.
    """
    starts = [start for start, _ in words]
    inside = {border for piece in pieces for border in range(*_reach(starts, piece))}
    borders = [border for border in range(1, len(words)) if border - 1 not in inside]
    return [range(*ends) for ends in pairwise([0, *borders, len(words)])] if words else []


def group_of_tokens(groups: Sequence[range], words: Sequence[Span], pieces: Iterable[Span]) -> list[int]:
    """Return for each piece the group that it is part of."""
    starts = [words[group.start][0] for group in groups]
    return [_at(starts, start) for start, _ in pieces]


def _reach(starts: Sequence[int], piece: Span) -> tuple[int, int]:
    """Return the first and the last word of a piece."""
    return _at(starts, piece[0]), _at(starts, piece[1] - 1)


def _at(starts: Sequence[int], place: int) -> int:
    return max(bisect_right(starts, place) - 1, 0)


@dataclass(frozen=True)
class TokenizedSentence:
    """A sentence as one model reads it: ids, and the group that each is part of."""

    ids: list[int]
    groups: list[int]


@dataclass(frozen=True)
class PairSide:
    """One side of a pair: its words, those that are joined, and what the models read."""

    sentence: Sentence
    groups: list[range]
    parts: list[TokenizedSentence]


@dataclass(frozen=True)
class TokenizedPair:
    """Both sides of a pair as one model reads them."""

    src: TokenizedSentence
    tgt: TokenizedSentence


@dataclass(frozen=True)
class SegmentedPair:
    """A pair, and how a model and, where there is one, its reverse read it; no readings where one of them cannot."""

    src: PairSide
    tgt: PairSide
    tokenized: list[TokenizedPair]


def segment_pair(pair: tuple[str, str], models: Sequence[Translator], units: str) -> SegmentedPair:
    """Cut a pair into words, and these into the pieces of a model and of its reverse."""
    src, tgt = _pair_side(pair[0], models, ("src", "tgt"), units), _pair_side(pair[1], models, ("tgt", "src"), units)
    fit = all(
        0 < len(part.ids) <= model.max_len
        for half in (src, tgt)
        for model, part in zip(models, half.parts, strict=True)
    )
    forward, *backward = zip(src.parts, tgt.parts, strict=True)
    readings = [TokenizedPair(*forward), *(TokenizedPair(one, other) for other, one in backward)]
    return SegmentedPair(src, tgt, readings if fit else [])


def _pair_side(text: str, models: Sequence[Translator], sides: tuple[Side, Side], units: str) -> PairSide:
    """Cut one side, which is the source of one of the models and the target of the other."""
    sentence = choose(UNITS, units, "way to find words")(text, models[0], sides[0])
    turned = list(zip(models, sides, strict=False))
    spans = [model.tokenizer.spans(sentence.text, side) for model, side in turned]
    ids = [model.tokenizer.encode(sentence.text, side) for model, side in turned]
    groups = word_groups(sentence.spans, [span for some in spans for span in some])
    parts = [
        TokenizedSentence(some, group_of_tokens(groups, sentence.spans, at))
        for some, at in zip(ids, spans, strict=True)
    ]
    return PairSide(sentence, groups, parts)


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
