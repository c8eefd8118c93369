"""Unicode normalisation, duplicate keys, language by script."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

# Control characters that are not white space, zero-width spaces, byte-order marks, and lone surrogates.
NOISE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


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
        text = _limit_marks(NOISE.sub("", text).replace("\u2581", "_"))
        text = _limit_marks(unicodedata.normalize("NFC", text))  # some marks are composed of several
    elif not text.isprintable():
        text = NOISE.sub("", text)
    return " ".join(text.split())


@cache
def simplifying_rules() -> tuple[dict[int, str], dict[str, str]]:
    """Return the table of characters, and the words that are read otherwise."""
    text = (Path(__file__).parent / "traditional.txt").read_text(encoding="utf-8")
    traditional, simplified, *rows = [line for line in text.splitlines() if not line.startswith("#")]
    words = dict(row.split(" ") for row in rows)
    return {ord(a): b for a, b in zip(traditional, simplified, strict=True)}, words


@cache
def _beginnings() -> frozenset[str]:
    """Return the characters with which words begin that are read otherwise; most texts have none."""
    return frozenset(word[0] for word in simplifying_rules()[1])


@cache
def _exceptions() -> re.Pattern[str]:
    """Return a pattern that finds words that are read otherwise."""
    longest_first = sorted(simplifying_rules()[1], key=len, reverse=True)
    return re.compile(rf"(?=[{''.join(sorted(_beginnings()))}])(?:{'|'.join(longest_first)})")


def simplify(text: str) -> str:
    """Fold Traditional Chinese characters to Simplified ones, as OpenCC's t2s does; each stays in its place."""
    if text.isascii():
        return text
    characters, words = simplifying_rules()
    if _beginnings().isdisjoint(text):
        return text.translate(characters)
    kept = list(text.translate(characters))
    for match in _exceptions().finditer(text):
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


# Scripts written without spaces between words.
UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0x9FFF)),
    *((0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x20000, 0x3FFFF)),
)
SIGNS = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED)  # in a pattern, which takes 2 ms to compile


def is_unspaced(text: str) -> bool:
    """Tell whether a text begins with a sign of such a script."""
    return bool(text) and any(first <= ord(text[0]) <= last for first, last in UNSPACED)


CHINESE = {"zh", "zho", "cmn"}
Side = Literal["src", "tgt"]


def simplified_sides(src_lang: str, tgt_lang: str) -> frozenset[Side]:
    """Return the sides whose language is Chinese and not by name the Traditional one."""
    named: tuple[tuple[Side, str], ...] = (("src", src_lang), ("tgt", tgt_lang))
    return frozenset(side for side, lang in named if language_code(lang) in CHINESE and "hant" not in lang.lower())


def language_code(code: str) -> str:
    """Return the language of a code such as `zh-CN`, `en_GB` or `zho_Hans`."""
    return re.split("[-_]", code.lower())[0]
