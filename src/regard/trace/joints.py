"""Words that stand in one piece are joined, for what looks at the piece looks at all of them."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from regard.text.units import Span


def join(words: Sequence[Span], pieces: Iterable[Span]) -> list[range]:
    """Gives the fewest words that must stay together, in their order: no piece reaches from one range into the next.

    Pieces may be those of several tokenizers.
    """
    starts = [start for start, _ in words]
    inside = {border for piece in pieces for border in range(*_reach(starts, piece))}
    borders = [border for border in range(1, len(words)) if border - 1 not in inside]
    return [range(*ends) for ends in pairwise([0, *borders, len(words)])] if words else []


def owners(joints: Sequence[range], words: Sequence[Span], pieces: Iterable[Span]) -> list[int]:
    """Tells for each piece the joint that it is part of."""
    starts = [words[joint.start][0] for joint in joints]
    return [_at(starts, start) for start, _ in pieces]


def _reach(starts: Sequence[int], piece: Span) -> tuple[int, int]:
    """Gives the first and the last word of a piece."""
    return _at(starts, piece[0]), _at(starts, piece[1] - 1)


def _at(starts: Sequence[int], place: int) -> int:
    return max(bisect_right(starts, place) - 1, 0)
