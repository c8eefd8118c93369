"""Where sentences end, and how a text is cut into parts that a model reads: in time linear in its length."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from regard.data.normalise import is_unspaced

STRONG = frozenset("。！？｡।॥؟۔")  # signs that end a sentence whatever follows
# Each match takes a whole run of signs, so that no run is read twice; whether it is an end is decided afterwards.
_SIGNS = re.compile(r"""([。！？｡।॥؟۔.!?…]+)["'”’」』）》)\]]*\s*|\n\s*""")
_LETTER = re.compile(r"\w")
_TOKEN = re.compile(r"[\w.’'-]+\Z")
_OPENING = re.compile(r"""["'“‘„«「『《（(\[¿¡]*""")
_STARTER = re.compile(r"\w+")
_DOTTED = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")  # initials and U.S, a.m, e.g
_PLAIN = re.compile(r"\w[.!?]\s")  # a single sign right after a word
_CONTINUES = frozenset(",.;:!?…)]}%，、；：。！？")
LONGEST_ABBREVIATION = 12

# After these a sentence goes on.
TITLES = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "mx",
        "dr",
        "prof",
        "st",
        "mt",
        "ft",
        "gen",
        "sen",
        "rep",
        "gov",
        "capt",
        "cpt",
        "lt",
        "col",
        "sgt",
        "maj",
        "cmdr",
        "rev",
        "hon",
        "pres",
        "messrs",
        "mme",
        "mlle",
        "vs",
        "cf",
        "viz",
        "e.g",
        "i.e",
        "z.b",
        "d.h",
        "u.a",
        "bzw",
        "ca",
        "nr",
        "hr",
        "fr",
        "p.ex",
    ]
)
# … and after these where a number follows.
BEFORE_NUMBERS = frozenset(
    [
        "no",
        "nos",
        "art",
        "fig",
        "figs",
        "vol",
        "p",
        "pp",
        "sec",
        "ch",
        "chap",
        "eq",
        "ver",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
    ]
)
# These end a sentence only before a word that often begins one, and so do initials and dotted abbreviations.
AMBIGUOUS = frozenset(
    [
        "etc",
        "inc",
        "co",
        "ltd",
        "corp",
        "jr",
        "sr",
        "ave",
        "blvd",
        "rd",
        "dept",
        "univ",
        "assn",
        "bros",
        "al",
        "usw",
        "approx",
        "incl",
        "excl",
        "resp",
        "max",
        "min",
        "avg",
        "est",
    ]
)
STARTERS = frozenset(
    [
        "a",
        "an",
        "the",
        "this",
        "that",
        "these",
        "those",
        "there",
        "here",
        "he",
        "she",
        "it",
        "they",
        "we",
        "you",
        "i",
        "his",
        "her",
        "its",
        "their",
        "our",
        "my",
        "your",
        "who",
        "what",
        "when",
        "where",
        "why",
        "how",
        "if",
        "in",
        "on",
        "at",
        "as",
        "after",
        "before",
        "but",
        "and",
        "so",
        "then",
        "no",
        "yes",
        "is",
        "are",
        "was",
        "do",
        "does",
        "did",
        "can",
        "please",
    ]
)


def split_sentences(text: str) -> list[str]:
    """Cut a text after each sentence and each line, with the white space that follows; joined, the parts are the text.

    A Latin sign ends a sentence before white space only, so 3.14 stays whole, and not after an abbreviation; between
    Chinese characters it ends one without.
    """
    places, seen, has_letter = [0], 0, False
    for match in _SIGNS.finditer(text):
        has_letter = has_letter or _LETTER.search(text, seen, match.start()) is not None
        seen = match.end()
        if "\n" in match[0] or (has_letter and match[1] and _ends(text, places[-1], match)):
            places.append(match.end())
            has_letter = False
    if places[-1] < len(text):
        places.append(len(text))
    return [text[start:stop] for start, stop in pairwise(places)]


def _ends(text: str, start: int, match: re.Match[str]) -> bool:
    signs, stop = match[1], match.end()
    if not STRONG.isdisjoint(signs):
        return True
    if not match[0][-1].isspace():
        before, after = text[match.start() - 1 : match.start()], text[stop : stop + 1]
        return is_unspaced(after) and (is_unspaced(before) or "…" in signs) and after not in _CONTINUES
    opening = _OPENING.match(text, stop, stop + 4)
    following = opening.end() if opening else stop
    first = text[following : following + 1]
    if first in _CONTINUES or (first.islower() and not _PLAIN.match(text, match.start() - 1)):
        return False  # "Wait... what?" and "“Go!” he said" go on
    return signs != "." or not _is_abbreviation(text, start, match.start(), following)


def _is_abbreviation(text: str, start: int, dot: int, following: int) -> bool:
    """Tell whether the word before a single dot is an abbreviation, or a number that counts off what follows."""
    token = _TOKEN.search(text, max(start, dot - LONGEST_ABBREVIATION), dot)
    if token is None:
        return False
    word = token[0].lower()
    if word in TITLES or (word in BEFORE_NUMBERS and text[following : following + 1].isdigit()):
        return True
    if word.isdigit():
        return token.start() == start
    if text[following : following + 1].islower():
        return len(word) < 3 or word in AMBIGUOUS | BEFORE_NUMBERS or "." in word
    if word in AMBIGUOUS or (_DOTTED.fullmatch(word) and token[0] != "I"):
        starter = _STARTER.match(text, following, following + LONGEST_ABBREVIATION)
        return starter is None or starter[0].lower() not in STARTERS
    return False


_CLAUSES = re.compile(r"[，、：；…,:;]+\s*")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class Part:
    """A stretch of a text without the white space around it, and that white space after it."""

    text: str
    gap: str
    forced: bool = False  # cut neither after a sentence nor after a clause


def split_parts(text: str, count: Callable[[str], int], max_len: int, by_sentence: bool = True) -> list[Part]:
    """Cut a text into sentences, and those that count more than `max_len` into about as few parts as possible.

    Long sentences are cut after clauses; a stretch without any at spaces, and one without spaces between any two
    characters: such a cut is marked as forced. Without `by_sentence`, a text that is short enough stays whole.
    """
    if not by_sentence and count(text) <= max_len:
        return [_part(text)]
    return [part for sentence in split_sentences(text) for part in _fit(sentence, count, max_len)]


def _part(text: str, forced: bool = False) -> Part:
    bare = text.rstrip()
    return Part(bare.lstrip(), text[len(bare) :], forced)


def _fit(sentence: str, count: Callable[[str], int], max_len: int, forced: bool = False) -> list[Part]:
    """Halve a sentence until its parts are short enough; `forced` says how it was cut at its end."""
    n_parts = -(-count(sentence) // max_len)
    if n_parts <= 1 or len(sentence) < 2:
        return [_part(sentence, forced)]
    place, in_clause = _place(sentence, len(sentence) * (n_parts // 2) / n_parts)
    return _fit(sentence[:place], count, max_len, in_clause) + _fit(sentence[place:], count, max_len, forced)


def _place(text: str, target: float) -> tuple[int, bool]:
    """Return the place to cut that is nearest to the target, and whether it lies within a clause."""
    for pattern in (_CLAUSES, _SPACES):
        places = [match.end() for match in pattern.finditer(text) if match.end() < len(text) and _separates(match[0])]
        if places:
            after = bisect_left(places, target)
            return min(places[max(0, after - 1) : after + 1], key=lambda place: abs(place - target)), pattern is _SPACES
    middle = max(1, round(target))
    return next((place for place in range(middle, max(0, middle - 32), -1) if not _joined(text, place)), middle), True


def _separates(signs: str) -> bool:
    return signs[-1].isspace() or not signs.isascii()  # the comma of 1,000 does not


JOINER = "\u200d"


def _joined(text: str, place: int) -> bool:
    """Tell whether two characters are shown as one: a letter with its marks, or emoji that are joined."""
    category = unicodedata.category(text[place])
    return category[0] == "M" or JOINER in text[place - 1 : place + 1]
