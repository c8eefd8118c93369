"""Bundled models: names, lookup, choice by language; model cards and licences."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

from regard.atomic import atomic_file
from regard.checkpoint import CARD, describe
from regard.config import choose, unknown
from regard.data.normalise import SCRIPTS, language_code
from regard.foreign import fetch, is_hub_name, own_folder


@dataclass(frozen=True)
class Bundled:
    """What a bundled model reads, what it writes, and what it is."""

    src_lang: str
    tgt_lang: str
    family: str
    precision: str = "float32"  # on a CPU where nobody asks for another: int8 where scores are the same


ZOO = {
    "zh-en": Bundled("zh", "en", "transformer", "int8"),
    "en-zh": Bundled("en", "zh", "transformer", "int8"),
    "zh-en-recurrent": Bundled("zh", "en", "recurrent"),
}
HOME = Path(__file__).parent


def present(home: Path = HOME) -> dict[str, Bundled]:
    """Return the bundled models that are there; a copy of the program may come without some, or all."""
    return {name: bundled for name, bundled in ZOO.items() if (home / name).is_dir()}


def find_model(model: str | PathLike[str], home: Path = HOME) -> Path:
    """Return the folder that a user means: a path where there is one, else a bundled model, or one on the hub.

    Of another program's folder the copy in our form is returned.
    """
    path = Path(model)
    if path.exists():
        return path if path.parent == home else own_folder(path)
    if is_hub_name(str(model)):
        return own_folder(fetch(str(model)))
    names = list(present(home))
    if str(model) in names:
        return home / str(model)
    others = unknown(str(model), names, "model") if names else f"and no model {str(model)!r} comes with this copy"
    raise ValueError(f"{path}: there is no such model folder; {others}")


def cpu_precision(folder: Path, home: Path = HOME) -> str:
    """Return the precision in which a model runs on a CPU by default."""
    bundled = ZOO.get(folder.name) if folder.parent == home else None
    return "float32" if bundled is None else bundled.precision


def named(name: str, home: Path = HOME) -> Path:
    """Return the folder of a bundled model."""
    if not present(home):
        raise ValueError(f"no models come with this copy of regard, got {name!r}: regard train makes one")
    choose(present(home), name, "model")
    return home / name


def listed(home: Path = HOME) -> str:
    """Name the bundled models with their languages, for messages."""
    found = present(home).items()
    return ", ".join(f"{name} ({each.src_lang} → {each.tgt_lang})" for name, each in found)


PEEK = 1000  # lines that are looked at before the text is said to tell nothing
LETTERS = re.compile(r"[^\W\d_]")
LATIN_WORD = re.compile(r"[a-zA-Z\u00c0-\u024f]+")
FAMILIES = ("transformer", "recurrent")  # in the order of preference


def pick(src: str | None, tgt: str | None, text: list[str], home: Path = HOME) -> str:
    """Name the bundled model for these languages; where the source is not named, the text's script tells it."""
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
    """Read on to the first line with letters; return the lines that were read, and all lines, these included."""
    rest, seen = iter(lines), []
    for line in rest:
        seen.append(line)
        if LETTERS.search(line) or len(seen) == PEEK:
            break
    return seen, chain(seen, rest)


def script_language(text: str) -> str | None:
    """Tell zh, ja, ko or en by the script of most words: a Chinese character counts as a word, kana are Japanese.

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
            f"the language cannot be told from the script of the text, got {telling.strip()[:30]!r}: "
            f"there are {listed(home)}; name the text's language with --from, or a model with --model"
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
    """Describe the bundled models that are there."""
    return [entry(name, home) for name in present(home)]


def entry(name: str, home: Path = HOME) -> Entry:
    """Describe one bundled model; its size is that of its whole folder."""
    folder, bundled = home / name, present(home)[name]
    found = describe(folder)
    measured_on = next((kind for kind in ("test", "valid") if kind in found["scores"]), None)
    bleu: Any = found["scores"][measured_on].get("bleu") if measured_on else None
    mib = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    languages = bundled.src_lang, bundled.tgt_lang
    licence = licence_of(read_card(folder))
    return Entry(name, *languages, bundled.family, found["parameters"], mib, bleu, measured_on, licence)


@dataclass(frozen=True)
class Corpus:
    """What a text is, under which licence, and who is to be named."""

    what: str
    licence: str
    attribution: str


# By the name of the folder in which each lies; the evidence is in that folder's README.
CORPORA = {
    "zh-en-tatoeba": Corpus(
        "everyday sentences",
        "CC BY 2.0 FR",
        "Tatoeba (https://tatoeba.org) and its contributors; pairs selected by ManyThings.org and by "
        "Helsinki-NLP/Tatoeba-Challenge (J. Tiedemann); folded to Simplified characters",
    ),
    "zh-en-games": Corpus(
        "texts of free games",
        "CC BY-SA 3.0, GPL-2+, GPL-3, MPL-2.0",
        "Cataclysm: Dark Days Ahead (CC BY-SA 3.0), Battle for Wesnoth, Widelands and Freeciv (GPL-2+), Shattered "
        "Pixel Dungeon (GPL-3), Unciv (MPL-2.0), their authors and translators",
    ),
    "zh-en-docs": Corpus(
        "software documentation",
        "CC0, PSF, CC BY 4.0, MPL-2.0, GPL-2+, Apache-2.0, CC BY-SA 3.0",
        "Python documentation (PSF; translations CC0), Kubernetes (CC BY 4.0), LibreOffice help (MPL-2.0), MediaWiki "
        "(GPL-2+), Dive into Deep Learning (Apache-2.0), GNOME help (CC BY-SA 3.0), Debian Handbook (GPL-2+ or "
        "CC BY-SA 3.0), their authors and translators",
    ),
    "zh-en-software": Corpus(
        "user-interface strings of Debian packages",
        "free licences, mostly GPL and LGPL",
        "authors and translators of 1,254 packages of Debian 12 main, each under the licence of its package",
    ),
    "zh-en-law": Corpus(
        "laws and regulations of Taiwan",
        "public domain",
        "Ministry of Justice, Laws & Regulations Database (law.moj.gov.tw), split by kong0107/mojLawSplitJSON; folded "
        "to Simplified characters",
    ),
    "zh-en-bible": Corpus("verses", "public domain, CC0", "Chinese Union Version (1919); Berean Standard Bible (CC0)"),
    "zh-en-cedict": Corpus("dictionary entries", "CC BY-SA 4.0", "CC-CEDICT, MDBG (https://cc-cedict.org)"),
    "zh-en-back": Corpus(
        "everyday English sentences, put into Chinese by the model en-zh",
        "CC BY 2.0 FR",
        "Tatoeba (https://tatoeba.org) and its contributors",
    ),
    "de-en-tatoeba": Corpus("everyday sentences", "CC BY 2.0 FR", "Tatoeba (https://tatoeba.org) and its contributors"),
    "fr-en-tatoeba": Corpus("everyday sentences", "CC BY 2.0 FR", "Tatoeba (https://tatoeba.org) and its contributors"),
}


SECTIONS = ("What it is", "Data and licences", "Scores", "Limits", "How to make it again")
OPEN = "(to be filled in)"
LICENCE = re.compile(r"^Licence: (.+)$", flags=re.MULTILINE)


def read_card(folder: Path) -> str:
    """Read the card of a model folder."""
    path = folder / CARD
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this model has no card; regard export --made-by writes one") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: this card cannot be read ({error})") from error


def licence_of(card: str) -> str | None:
    """Return what the card says after `Licence:`."""
    found = LICENCE.search(card)
    return found and found[1]


def lacks(card: str) -> list[str]:
    """Name what a card must have and this one has not."""
    missing = [f"section {name!r}" for name in SECTIONS if f"\n## {name}\n" not in card]
    missing += [] if licence_of(card) else ["a line that begins with 'Licence: '"]
    return missing + ([f"what is {OPEN}"] if OPEN in card else [])


def write_card(folder: Path, made_by: str) -> list[str]:
    """Write a card from a model's settings and scores, and name what a person has to fill in."""
    card = make_card(folder.name, describe(folder), made_by)
    with atomic_file(folder / CARD) as draft:
        draft.write_text(card, encoding="utf-8")
    return lacks(card)


def _script(settings: Mapping[str, Any]) -> str:
    """Say how Chinese is read, if it is folded."""
    folded = settings["text"]["simplify"]
    return (
        "\nTraditional Chinese is read as Simplified, character by character, as in its training text."
        if folded
        else ""
    )


def make_card(name: str, found: Mapping[str, Any], made_by: str) -> str:
    """Word the card of a model that `describe` described."""
    data, model = found["settings"]["data"], found["settings"]["model"]
    corpora = corpora_of(data["train"])
    licences = sorted({part for each in corpora.values() for part in each.licence.split(", ")})
    return f"""# {name}

Translates {data["src_lang"]} to {data["tgt_lang"]}.

Licence: that of its texts: {", ".join(licences)}

## What it is

A {model["family"]} model of {found["parameters"]:,} parameters: {_sizes(model)}, {found["vocabulary"]["src"]:,} source
and {found["vocabulary"]["tgt"]:,} target pieces. Weights in {found["precision"]}, {found["bytes"] / 2**20:.1f} MiB.

## Data and licences

| text | what | licence | by |
|---|---|---|---|
{_rows(corpora)}

The licences ask that the sources are named and, some of them, that what is made from them is shared alike.

## Scores

{_scores(found["scores"], corpora)}

## Limits

It knows what it has read: short everyday and technical sentences. It translates sentence by sentence, without what came
before, reads at most {found["settings"]["text"]["max_len"]} pieces at a time, and may be wrong or leave things out
without a sign of it. Names and numbers deserve a second look.{_script(found["settings"])}

## How to make it again

```sh
{made_by}
```
"""


def corpora_of(sources: Sequence[str]) -> dict[str, Corpus]:
    """Return the known text in whose folder each source lies; one that is not known is left to be filled in."""
    found = {}
    for source in sources:
        name = Path(source.split(",")[0]).parent.name
        key = name if name in CORPORA else source
        found[key] = CORPORA.get(name, Corpus(OPEN, OPEN, OPEN))
    return found


def _rows(corpora: Mapping[str, Corpus]) -> str:
    rows = (f"| {name} | {each.what} | {each.licence} | {each.attribution} |" for name, each in corpora.items())
    return "\n".join(rows)


def _sizes(model: Mapping[str, Any]) -> str:
    layers = f"{model['n_encoder_layers']} + {model['n_decoder_layers']} layers, width {model['d_model']}"
    position = model["position"]["name"]
    return f"{layers}, {model['attention']['name']} attention, {'no' if position == 'none' else position} positions"


def _scores(scores: Mapping[str, Any], corpora: Mapping[str, Corpus]) -> str:
    tests = scores.get("tests") or ([scores["test"]] if "bleu" in scores.get("test", {}) else [])
    lines = _tests([{"on": "a test", **each} for each in tests], corpora) if tests else []
    if "valid" in scores:
        valid = scores["valid"]
        of_text = f"loss {valid['loss']:.4f} nats a piece"
        found = f"BLEU {valid['bleu']:.2f}, greedy" if "bleu" in valid else of_text
        lines += [f"Training chose the weights by validation text: {found}{_in(valid)}."]
    return "\n".join(lines) or OPEN


def _tests(tests: list[dict[str, Any]], corpora: Mapping[str, Corpus]) -> list[str]:
    """Return a table of scores: first of text unlike all that was learned from, then of the kinds that were."""
    known = [any(part.split("/")[0] in corpora for part in each["on"].split(", ")) for each in tests]
    order = sorted(range(len(tests)), key=lambda i: known[i])
    rows = [
        f"| {tests[i]['on']} | {'yes' if known[i] else 'no'} | {tests[i]['n']:,} "
        f"| {tests[i]['bleu']:.2f} | {tests[i]['chrf']:.2f} |"
        for i in order
    ]
    signatures = dict.fromkeys(tests[i][kind] for kind in ("bleu_signature", "chrf_signature") for i in order)
    head = ["| text | its kind was learned from | sentences | BLEU | chrF |", "|---|---|---:|---:|---:|"]
    beam = f", {tests[0]['method']} search with {tests[0]['beam']}" if "method" in tests[0] else ""
    signed = ", ".join(f"`{each}`" for each in signatures)
    return [*head, *rows, "", f"Signatures: {signed}{beam}{_in(tests[0])}.", ""]


def _in(measured: Mapping[str, Any]) -> str:
    """Name the precision of scores that were measured in another than the model's."""
    return f", in {measured['precision']}" if "precision" in measured else ""
