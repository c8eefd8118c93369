"""The rules that need nothing but the pair itself, and the names of all reasons for which pairs are dropped."""

import re
import unicodedata

from regard.clean.lengths import LengthLaw
from regard.data.normalise import dedup_key, is_unspaced

# In the order in which they are asked: the first that applies is the reason.
REASONS = {
    "unreadable": "a line that is no pair, not UTF-8 or too long to read",
    "empty": "a side without text",
    "long": "more characters than --max-chars",
    "garbage": "control characters, text decoded wrongly, or more markup than words",
    "copy": "one side repeats the other",
    "numbers": "both sides have numbers, and none in common",
    "links": "addresses that only one side has",
    "length": "lengths that do not go together",
    "language": "not the language of its side",
    "misaligned": "words that do not translate each other",
    "truncated": "a side that stops early",
    "duplicate": "a pair that was there before",
    "near-duplicate": "but for case, punctuation and numbers there before",
}
ALWAYS = ("unreadable", "empty")  # rules that cannot be left out
CODES = {reason: code for code, reason in enumerate(REASONS, start=1)}  # 0 is a pair that is kept

_LINK = re.compile(r"(?:https?://|www\.)[\w./?=&%#~+-]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.ASCII)
_NUMBER = re.compile(r"\d+(?:[.,'’ ]\d+)*")
_DIGITS = re.compile(r"\d+")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>|&[a-z]{2,8};|&#\d{1,6};|\{\{|\}\}|\[\[|\]\]")
# UTF-8 that was read as Latin-1 or Windows-1252, and the sign for bytes that nobody could read.
_WRONG = re.compile("\ufffd.*\ufffd|Ã[\u0080-\u00bf¼½¾¡-¿]|Â[\u0080-\u009f\u00a0-¿]|â€[\u0080-\u00bf™œ\u009d“”˜¦]")
_CONTROL = re.compile("[\x00-\x08\x0e-\x1b\x7f\x80-\x84\x86-\x9f\ufffe\uffff\ue000-\uf8ff]")
_WORD = re.compile(r"[^\W\d_]+")
MOST_CONTROL = 0.05  # share of the characters
MOST_MARKUP = 0.5  # share of the characters that are markup
FEWEST_LETTERS = 0.25  # share of the signs of a text that is longer than ...
SHORT = 12  # characters, which may be a formula or a menu's dots
NAMES = 3  # words that may be the same in any language: Adobe Photoshop Elements


def broken_rule(src: str, tgt: str, raw: str, max_chars: int, lengths: LengthLaw, skip: frozenset[str]) -> str | None:
    """Return the first reason to drop a pair that can be seen in it alone; `raw` still has its control characters."""
    if not src or not tgt:
        return "empty"
    checks = {
        "long": lambda: max(len(src), len(tgt)) > max_chars,
        "garbage": lambda: _is_garbage(raw) or _has_few_letters(src) or _has_few_letters(tgt),
        "copy": lambda: is_copy(src, tgt),
        "numbers": lambda: _numbers_differ(src, tgt),
        "links": lambda: links(src) != links(tgt),
        "length": lambda: lengths.surprise(len(src), len(tgt)) > lengths.limit,
    }
    return next((name for name, applies in checks.items() if name not in skip and applies()), None)


def _is_garbage(raw: str) -> bool:
    if raw.isascii() and raw.replace("\t", " ").isprintable() and "<" not in raw and "&" not in raw:
        return False
    if _WRONG.search(raw) or len(_CONTROL.findall(raw)) > MOST_CONTROL * len(raw):
        return True
    return any(sum(map(len, _TAG.findall(side))) > MOST_MARKUP * len(side) for side in raw.split("\t") if side)


def _has_few_letters(text: str) -> bool:
    if len(text) <= SHORT:
        return False
    n_letters = sum(map(str.isalnum, text))
    if not text.isascii():
        n_letters += sum(unicodedata.category(each)[0] == "M" for each in text if not each.isalnum())
    return n_letters < FEWEST_LETTERS * (len(text) - text.count(" "))


def is_copy(src: str, tgt: str) -> bool:
    """Tell whether a side repeats the other: all of it, in more words than a name has.

    What is written alike in two languages (names, numbers, addresses, identifiers) is no sentence: at most three words,
    or words that are all capitalised. Whether a shorter copy is wrong, the classifier of a corpus tells.
    """
    if dedup_key(src) != dedup_key(tgt):
        return False
    words = _WORD.findall(_LINK.sub("", src))
    if any(is_unspaced(word) for word in words):
        return sum(len(word) for word in words if is_unspaced(word)) > NAMES
    return len(words) > NAMES and any(word[0].islower() for word in words)


def links(text: str) -> frozenset[str]:
    """Return the addresses in a text, without the full stop that may follow."""
    if "." not in text:
        return frozenset()
    return frozenset(found.rstrip("./").lower() for found in _LINK.findall(text))


def numbers(text: str) -> frozenset[str]:
    """Return the runs of digits in a text, and those that are joined by separators, without zeros at either end.

    So 1,000, 1000 and 1 thousand are written alike, 07 and 7, １２ and 12, 1.1亿 and 110 million.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    runs = {run for found in _NUMBER.findall(text) for run in (*_DIGITS.findall(found), re.sub(r"\D", "", found))}
    return frozenset(run.strip("0") or "0" for run in runs)


def _numbers_differ(src: str, tgt: str) -> bool:
    ours, theirs = numbers(src), numbers(tgt)
    return bool(ours and theirs) and ours.isdisjoint(theirs) and not _same_hours(ours, theirs)


def _same_hours(ours: frozenset[str], theirs: frozenset[str]) -> bool:
    """Tell whether a number is the other one's twelve hours later: 4 pm and 16:00."""
    short = [{int(each) for each in side if len(each) <= 2} for side in (ours, theirs)]
    return any(abs(a - b) == 12 for a in short[0] for b in short[1])
