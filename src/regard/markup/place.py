"""Where tags belong in a translation: around the words that attended to those that they stood around."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from regard.data.normalise import SIGNS
from regard.data.words import MARKS, Span
from regard.markup.parse import Element
from regard.shapes import Array, Float, np

# Words of a translation that are not cut: letters and digits with signs between them, a sign of a script without
# spaces, and every other sign.
WORD = re.compile(rf"[{SIGNS}][{MARKS}]*|[^\W{SIGNS}]+(?:[.'’_@-][^\W{SIGNS}]+)*|[^\s{SIGNS}]")
# A word belongs to marked ones by the share of its attention that they have: more than COUNTS speaks for it, and the
# outermost words have BORDER. Both were chosen on validation text (docs/log.md).
COUNTS, BORDER = 0.3, 0.8


@dataclass(frozen=True, eq=False)
class AttendedPart:
    """A part of a text that was read by itself: where it is, its tokens, and how much each word attends to each."""

    start: int  # in the text
    text: str
    tokens: Sequence[Span]  # in the part, as the model read it
    words: Sequence[Span]  # of the whole translation, those of this part
    shares: Float[Array, "W S"]
    length: Callable[[str], int]  # that a text has as the model reads it


@dataclass(frozen=True, eq=False)
class TextAttention:
    """Which words of a translation attended to which characters of its source."""

    parts: Sequence[AttendedPart]

    @property
    def words(self) -> list[Span]:
        """The words of the translation."""
        return [word for part in self.parts for word in part.words]

    def shares(self, start: int, stop: int) -> list[float]:
        """Return how much of its attention each word of the translation gives to some characters of the source."""
        found: list[float] = []
        for part in self.parts:
            first, last = (min(max(place - part.start, 0), len(part.text)) for place in (start, stop))
            low, high = part.length(part.text[:first]), part.length(part.text[:last])
            columns = [i for i, (begin, end) in enumerate(part.tokens) if begin < high and end > low]
            found += part.shares[:, columns].sum(1).tolist() if first < last else [0.0] * len(part.words)
        return found


@dataclass
class PlacedElement:
    """An element, the characters of a translation that it stands around, and what stands within it."""

    element: Element
    start: int
    stop: int
    inner: "list[PlacedElement]" = field(default_factory=list)


@dataclass(frozen=True)
class Stretch:
    """A stretch of the text, in characters, and the one of the translation that belongs to it, in words as well."""

    src: Span
    tgt: Span
    words: Span | None  # all where there is none


class Placer:
    """Places the elements of one text in its translation; the alignment is looked at only where it decides."""

    def __init__(self, plain: str, target: str, alignment: Callable[[], TextAttention]):
        self.plain = plain
        self.target = target
        self._align = alignment
        self._aligned: TextAttention | None = None
        self._words: list[Span] = []

    def place(self, elements: list[Element]) -> list[PlacedElement]:
        """Return elements with their places: within each other as they were, and beside each other."""
        whole = (len(self.target) - len(self.target.lstrip()), len(self.target.rstrip()))
        whole = whole if whole[0] <= whole[1] else (0, 0)
        return self._within(elements, Stretch((0, len(self.plain)), whole, None))

    def _within(self, elements: list[Element], around: Stretch) -> list[PlacedElement]:
        pairs = [each for each in elements if each.start < each.stop]
        if len(pairs) == 1 and self._covers(pairs[0], around.src):
            stretches = {0: around}
        else:
            stretches = dict(enumerate(self._stretches(pairs, around))) if pairs else {}
        placed, n_pairs = [], 0
        for element in elements:
            if element.start < element.stop:
                own = stretches[n_pairs]
                n_pairs += 1
                inner = self._within(element.inner, Stretch((element.start, element.stop), own.tgt, own.words))
                placed.append(PlacedElement(element, *own.tgt, inner))
            else:
                following = [stretch.tgt for number, stretch in stretches.items() if number >= n_pairs]
                before = [stretch.tgt for number, stretch in stretches.items() if number < n_pairs]
                placed.append(_at(element, _outside(self._alone(element, around), before, following)))
        return placed

    def _covers(self, element: Element, span: Span) -> bool:
        """Tell whether only white space of a stretch is outside of a pair."""
        outside = self.plain[span[0] : element.start] + self.plain[element.stop : span[1]]
        return not outside.strip()

    def _shares(self, start: int, stop: int) -> list[float]:
        if self._aligned is None:
            self._aligned = self._align()
            self._words = self._aligned.words
        return self._aligned.shares(start, stop)

    def _range(self, around: Stretch) -> Span:
        return (0, len(self._words)) if around.words is None else around.words

    def _stretches(self, pairs: list[Element], around: Stretch) -> list[Stretch]:
        """Return a stretch of the translation for each pair, no two of which overlap."""
        shares = [self._shares(each.start, each.stop) for each in pairs]
        first, last = self._range(around)
        owners = [max(range(len(pairs)), key=lambda n: shares[n][word]) for word in range(first, last)]
        found = []
        for number, (pair, share) in enumerate(zip(pairs, shares, strict=True)):
            mine = [
                (share[word] if owner == number else -1.0) if self._is_said(word) else None
                for word, owner in zip(range(first, last), owners, strict=True)
            ]
            begin, end = best_stretch(mine)
            begin, end = self._with_signs(pair, first + begin, first + end, (first, last))
            tgt = (self._words[begin][0], self._words[end - 1][1]) if begin < end else (around.tgt[1], around.tgt[1])
            found.append(Stretch((pair.start, pair.stop), tgt, (begin, end)))
        return _apart(found)

    def _is_said(self, word: int) -> bool:
        start, stop = self._words[word]
        return any(character.isalnum() for character in self.target[start:stop])

    def _with_signs(self, pair: Element, begin: int, end: int, limits: Span) -> Span:
        """Take in the sign before or after a stretch where one is within the pair."""
        text = self.plain[pair.start : pair.stop].strip()
        if begin < end < limits[1] and not text[-1:].isalnum() and not self._is_said(end):
            end += 1
        if limits[0] < begin < end and not text[:1].isalnum() and not self._is_said(begin - 1):
            begin -= 1
        return begin, end

    def _alone(self, element: Element, around: Stretch) -> int:
        """Return where a tag belongs that stands by itself: before the next word's translation, or at an end."""
        before, after = self.plain[around.src[0] : element.start], self.plain[element.start : around.src[1]]
        if not before.strip() or not after.strip():
            return around.tgt[bool(before.strip())]
        behind = not before[-1].isspace() and after[0].isspace()
        at = element.start - 1 if behind else element.start + len(after) - len(after.lstrip())
        shares = self._shares(at, at + 1)
        first, last = self._range(around)
        if not any(shares[first:last]):
            return around.tgt[1]
        best = max(range(first, last), key=lambda word: shares[word])
        return self._words[best][behind]


def best_stretch(shares: Sequence[float | None]) -> Span:
    """Return the words whose shares exceed COUNTS by the most in sum, without outer ones of little.

    A sign, which is None, speaks neither for nor against; of -1 is a word that must not be in it.
    """
    begin = end = start = 0
    best = total = 0.0
    for word, share in enumerate(shares):
        if total <= 0 or share == -1:
            start, total = word, 0.0
        total += 0.0 if share is None or share == -1 else share - COUNTS
        if total > best:
            begin, end, best = start, word + 1, total
    said = [share or 0.0 for share in shares]
    if begin == end:  # none has as much: the word that has the most
        begin = max(range(len(said)), key=said.__getitem__, default=0)
        return (begin, begin + 1) if said and said[begin] > 0 else (0, 0)
    enough = min(BORDER, max(said[begin:end]))
    while said[begin] < enough:
        begin += 1
    while said[end - 1] < enough:
        end -= 1
    return begin, end


def _at(element: Element, place: int) -> PlacedElement:
    """Place an element that stands around nothing, with all that is in it."""
    return PlacedElement(element, place, place, [_at(each, place) for each in element.inner])


def _apart(stretches: list[Stretch]) -> list[Stretch]:
    """Cut what overlaps, from the left: signs may have been taken in twice."""
    order = sorted(range(len(stretches)), key=lambda n: (stretches[n].tgt, n))
    ends = [0, *accumulate((stretches[n].tgt[1] for n in order), max)]
    for n, least in zip(order, ends, strict=False):
        each = stretches[n]
        if each.tgt[0] < least:
            stretches[n] = replace(each, tgt=(least, max(least, each.tgt[1])))
    return stretches


def _outside(place: int, before: list[Span], following: list[Span]) -> int:
    """Move a place out of stretches that it did not stand in: behind those that came before it."""
    for start, stop in (*before, *following):
        if start < place < stop:
            return stop if (start, stop) in before else start
    return place


def words_of(text: str, tokens: Sequence[Span]) -> list[Span]:
    """Cut a translation into words; signs of scripts without spaces stay together where they are one token."""
    inside = {place for start, stop in tokens for place in range(start + 1, stop)}
    found: list[Span] = []
    for match in WORD.finditer(text):
        start, stop = match.span()
        last = found[-1] if found else (0, 0)
        joined = start in inside and last[1] == start
        if joined and _is_sign(text[start]) and _is_sign(text[start - 1]):
            found[-1] = (last[0], stop)
        else:
            found.append((start, stop))
    return found


def _is_sign(character: str) -> bool:
    return re.match(f"[{SIGNS}]", character) is not None and character.isalnum()


def word_shares(words: Sequence[Span], tokens: Sequence[Span], shares: Float[Array, "T S"]) -> Float[Array, "W S"]:
    """Return the mean share of each word's tokens."""
    table = np.zeros((len(words), shares.shape[1]), np.float32)
    for word, (start, stop) in enumerate(words):
        own = [row for row, (first, last) in enumerate(tokens) if first < stop and last > start]
        if own:
            table[word] = shares[own].mean(0)
    return table
