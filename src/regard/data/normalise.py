"""Unicode normalisation, duplicate keys, language by script, word boundaries."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

# Control characters that are not white space, zero-width spaces, byte-order marks, and lone surrogates.
_NOISE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation, the file and line they come from, and the index of their source."""

    src: str
    tgt: str
    where: str
    origin: int = 0
    overlong: bool = False  # a line that was too long to be read: both sides are empty


def make_pair(src: str, tgt: str, where: str) -> Pair:
    """Return a pair of sentences, normalised."""
    return Pair(normalise(src), normalise(tgt), where)


def normalise(text: str) -> str:
    """Compose characters (NFC), drop control characters and collapse white space; change nothing else.

    Of a run of combining marks the first 30 are kept, as many as Unicode's stream-safe text has (UAX #15): the time
    that sorting them takes grows with the square of their number.
    """
    if not text.isascii():
        # Tokenizers mark a space by this character, and would decode it as one.
        text = _limit_marks(_NOISE.sub("", text).replace("\u2581", "_"))
        text = _limit_marks(unicodedata.normalize("NFC", text))  # some marks are composed of several
    elif not text.isprintable():
        text = _NOISE.sub("", text)
    return " ".join(text.split())


@cache
def _simplified() -> tuple[dict[int, str], dict[str, str], re.Pattern[str]]:
    """Return the table of characters, the words that are read otherwise, and a pattern that finds these."""
    text = (Path(__file__).parent / "traditional.txt").read_text(encoding="utf-8")
    traditional, simplified, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    words = dict(row.split(" ") for row in rows)
    beginnings = "".join(sorted({word[0] for word in words}))
    longest_first = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"(?=[{beginnings}])(?:{'|'.join(longest_first)})")
    return {ord(a): b for a, b in zip(traditional, simplified, strict=True)}, words, pattern


def simplify(text: str) -> str:
    """Fold Traditional Chinese characters to Simplified ones, as OpenCC's t2s does; each stays in its place."""
    if text.isascii():
        return text
    characters, words, pattern = _simplified()
    kept = list(text.translate(characters))
    for match in pattern.finditer(text):
        kept[match.start() : match.end()] = words[match[0]]
    return "".join(kept)


MAX_MARKS = 30
_LONG_RUN = re.compile(rf"\W{{{MAX_MARKS + 1},}}")  # marks are no letters


def _limit_marks(text: str) -> str:
    return _LONG_RUN.sub(_without_surplus_marks, text)


def _without_surplus_marks(match: re.Match[str]) -> str:
    kept, n_marks = [], 0
    for character in match[0]:
        n_marks = n_marks + 1 if unicodedata.combining(character) else 0
        if n_marks <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


_NO_WORD = re.compile(r"[\W_]+")  # all but letters and digits; combining marks match too


def dedup_key(text: str) -> str:
    """Keep letters, digits and marks (categories L, N and M), case-folded (NFKC); a text without any is its own key.

    >>> key_of("Who's Tom? ") == key_of("“WHOS TOM”")
    True
    """
    folded = text.casefold() if text.isascii() else _folded(text)
    return _NO_WORD.sub("" if folded.isascii() else _marks, folded) or text


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _marks(match: re.Match[str]) -> str:
    return "".join(character for character in match[0] if unicodedata.category(character)[0] == "M")


# Han alone is Chinese; with kana it is Japanese. Scripts that many languages share do not identify one.
SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
}


def guess_language(texts: Sequence[str]) -> str | None:
    """Return zh, ja or ko if most texts have letters of that script, else None."""
    for language, letters in SCRIPTS.items():
        if sum(letters.search(text) is not None for text in texts) * 2 > len(texts):
            return language
    return None


Span = tuple[int, int]  # characters, start and end

# Scripts written without spaces between words.
SIGNS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
# Marks of Thai and similar scripts that belong to the letter before them.
MARKS = r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3\u3099\u309a"
UNSPACED = re.compile(rf"[{SIGNS}]")
WORD = re.compile(rf"[{SIGNS}][{MARKS}]*|[^\s{SIGNS}]+")
CLOSING = re.compile(r"[.,;:!?%)\]}…]+|['’](?:s|m|d|t|re|ve|ll)|n['’]t", re.IGNORECASE)
OPENING = re.compile(r"[(\[{$#]")
QUOTE = '"'


@dataclass(frozen=True)
class Sentence:
    """A normalised text and the spans of its words, which cover all of it but the white space."""

    text: str
    spans: tuple[Span, ...]

    @property
    def words(self) -> list[str]:
        return [self.text[start:stop] for start, stop in self.spans]


def split_words(text: str) -> Sentence:
    """Split at spaces; in scripts without spaces each character is a word."""
    text = normalise(text)
    return Sentence(text, tuple(match.span() for match in WORD.finditer(text)))


def split_pieces(text: str, pieces: Sequence[Span]) -> Sentence:
    """Split at spaces; in scripts without spaces each of the given pieces is a word."""
    text = normalise(text)
    inside = {i for start, stop in pieces for i in range(start + 1, stop)}
    spans: list[Span] = []
    for start, stop in split_words(text).spans:
        if start in inside:
            spans[-1] = (spans[-1][0], stop)
        else:
            spans.append((start, stop))
    return Sentence(text, tuple(spans))


def join_words(line: str) -> Sentence:
    """Take space-separated words and join them as they are written: scripts without spaces, and punctuation, attached.

    A model then reads text as in its training data.
    """
    words = normalise(line).split()
    written, spans, at, quotes = [], [], 0, 0
    for last, word in zip(["", *words], words, strict=False):
        space = " " if last and _needs_space(last, word, quotes % 2 == 1) else ""
        at += len(space)
        spans.append((at, at + len(word)))
        at += len(word)
        quotes += word == QUOTE
        written += (space, word)
    text = "".join(written)
    if normalise(text) != text:  # characters compose across a word boundary: keep the spaces
        text = " ".join(words)
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    return Sentence(text, tuple(spans))


def _needs_space(last: str, word: str, closes: bool) -> bool:
    """Tell whether a space is written between two words; every second straight quote `closes`."""
    if UNSPACED.match(last[-1]) or UNSPACED.match(word[0]) or CLOSING.fullmatch(word) or OPENING.fullmatch(last):
        return False
    return not (closes and QUOTE in {last, word})


CHINESE = {"zh", "zho", "cmn"}
Side = Literal["src", "tgt"]


def simplified_sides(src_lang: str, tgt_lang: str) -> frozenset[Side]:
    """Return the sides whose language is Chinese and not by name the Traditional one."""
    named: tuple[tuple[Side, str], ...] = (("src", src_lang), ("tgt", tgt_lang))
    return frozenset(side for side, lang in named if language_code(lang) in CHINESE and "hant" not in lang.lower())


def language_code(code: str) -> str:
    """Return the language of a code such as `zh-CN`, `en_GB` or `zho_Hans`."""
    return re.split("[-_]", code.lower())[0]
