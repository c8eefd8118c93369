"""Which bundled model suits a text: by the languages that a user names, or by the script."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from regard.text.language import SCRIPTS
from regard.zoo import HOME
from regard.zoo.find import listed, present

PEEK = 1000  # lines that are looked at before the text is said to tell nothing
LETTERS = re.compile(r"[^\W\d_]")
LATIN_WORD = re.compile(r"[a-zA-Z\u00c0-\u024f]+")
FAMILIES = ("transformer", "recurrent")  # in the order of preference


def pick(src: str | None, tgt: str | None, text: list[str], home: Path = HOME) -> str:
    """Names the bundled model for these languages; where the source is not named, the text's script tells it."""
    there = present(home)
    if not there:
        raise ValueError("no models come with this copy of regard: name a model folder with --model")
    read = _code(src) if src else _language(text, home)
    fitting = [
        name
        for name, bundled in there.items()
        if bundled.src_lang == read and (tgt is None or bundled.tgt_lang == _code(tgt))
    ]
    if not fitting:
        to = f" to {tgt}" if tgt else ""
        raise ValueError(
            f"no bundled model translates from {src or read}{to}: there are {listed(home)}; "
            "name languages with --from and --to, or a model with --model"
        )
    return min(fitting, key=lambda name: FAMILIES.index(there[name].family))


def peek(lines: Iterable[str]) -> tuple[list[str], Iterator[str]]:
    """Reads on to the first line with letters; gives the lines that were read, and all lines, these included."""
    rest, seen = iter(lines), []
    for line in rest:
        seen.append(line)
        if LETTERS.search(line) or len(seen) == PEEK:
            break
    return seen, chain(seen, rest)


def script_language(text: str) -> str | None:
    """Tells zh, ja, ko or en by the script of most words: a Chinese character counts as a word, kana are Japanese.

    Latin letters count as English, the one language in them that a bundled model reads.
    """
    if SCRIPTS["ja"].search(text):
        return "ja"
    counts = {"zh": len(SCRIPTS["zh"].findall(text)), "ko": len(SCRIPTS["ko"].findall(text))}
    counts["en"] = len(LATIN_WORD.findall(text))
    known = counts["zh"] + counts["ko"] + len("".join(LATIN_WORD.findall(text)))
    others = len(LETTERS.findall(text)) - known
    language = max(counts, key=lambda name: counts[name])
    return language if counts[language] > others else None


def _language(text: list[str], home: Path) -> str:
    if not any(line.strip() for line in text):
        return next(iter(present(home).values())).src_lang  # of nothing, every model makes nothing
    telling = " ".join(text)
    language = script_language(telling)
    if language is None:
        raise ValueError(
            f"the script of the text tells no language, got {telling.strip()[:30]!r}: there are {listed(home)}; "
            "name the text's language with --from, or a model with --model"
        )
    return language


def _code(language: str) -> str:
    """Gives the language of a code such as `zh-CN` or `en_GB`."""
    return re.split("[-_]", language.lower())[0]
