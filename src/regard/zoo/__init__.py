"""Bundled models: names, lookup, choice by language, sample sentences."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from regard.checkpoint import describe
from regard.config import choose, unknown
from regard.data.normalise import SCRIPTS, language_code
from regard.zoo.card import licence_of, read_card


@dataclass(frozen=True)
class Bundled:
    """What a bundled model reads, what it writes, and what it is."""

    src_lang: str
    tgt_lang: str
    family: str


ZOO = {
    "zh-en": Bundled("zh", "en", "transformer"),
    "en-zh": Bundled("en", "zh", "transformer"),
    "zh-en-recurrent": Bundled("zh", "en", "recurrent"),
}
HOME = Path(__file__).parent


def present(home: Path = HOME) -> dict[str, Bundled]:
    """Gives the bundled models that are there; a copy of the program may come without some, or all."""
    return {name: bundled for name, bundled in ZOO.items() if (home / name).is_dir()}


def find_model(model: str | PathLike[str], home: Path = HOME) -> Path:
    """Gives the folder that a user means: a path where there is one, else a bundled model of that name."""
    path = Path(model)
    if path.exists():
        return path
    names = list(present(home))
    if str(model) in names:
        return home / str(model)
    others = unknown(str(model), names, "model") if names else f"and no model {str(model)!r} comes with this copy"
    raise ValueError(f"{path}: there is no such model folder; {others}")


def named(name: str, home: Path = HOME) -> Path:
    """Gives the folder of a bundled model."""
    if not present(home):
        raise ValueError(f"no models come with this copy of regard, got {name!r}: regard train makes one")
    choose(present(home), name, "model")
    return home / name


def listed(home: Path = HOME) -> str:
    """Names the bundled models with their languages, for messages."""
    found = present(home).items()
    return ", ".join(f"{name} ({each.src_lang} → {each.tgt_lang})" for name, each in found)


PEEK = 1000  # lines that are looked at before the text is said to tell nothing
LETTERS = re.compile(r"[^\W\d_]")
LATIN_WORD = re.compile(r"[a-zA-Z\u00c0-\u024f]+")
FAMILIES = ("transformer", "recurrent")  # in the order of preference


def pick(src: str | None, tgt: str | None, text: list[str], home: Path = HOME) -> str:
    """Names the bundled model for these languages; where the source is not named, the text's script tells it."""
    there = present(home)
    if not there:
        raise ValueError("no models come with this copy of regard: name a model folder with --model")
    read = language_code(src) if src else _language(text, home)
    fitting = [
        name
        for name, bundled in there.items()
        if bundled.src_lang == read and (tgt is None or bundled.tgt_lang == language_code(tgt))
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


@dataclass(frozen=True)
class Entry:
    """One bundled model; `measured_on` says whether its BLEU is that of test or of validation text."""

    name: str
    src_lang: str
    tgt_lang: str
    family: str
    parameters: int
    mib: float
    bleu: float | None
    measured_on: str | None
    licence: str | None


def catalogue(home: Path = HOME) -> list[Entry]:
    """Describes the bundled models that are there."""
    return [entry(name, home) for name in present(home)]


def entry(name: str, home: Path = HOME) -> Entry:
    """Describes one bundled model; its size is that of its whole folder."""
    folder, bundled = home / name, present(home)[name]
    found = describe(folder)
    measured_on = next((kind for kind in ("test", "valid") if kind in found["scores"]), None)
    bleu: Any = found["scores"][measured_on]["bleu"] if measured_on else None
    mib = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    languages = bundled.src_lang, bundled.tgt_lang
    licence = licence_of(read_card(folder))
    return Entry(name, *languages, bundled.family, found["parameters"], mib, bleu, measured_on, licence)
