"""Model cards and licences."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.atomic import atomic_file
from regard.checkpoint import CARD, describe


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
    """Reads the card of a model folder."""
    path = folder / CARD
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"{path}: this model has no card; regard export --made-by writes one") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: this card cannot be read ({error})") from error


def licence_of(card: str) -> str | None:
    """Gives what the card says after `Licence:`."""
    found = LICENCE.search(card)
    return found and found[1]


def lacks(card: str) -> list[str]:
    """Names what a card must have and this one has not."""
    missing = [f"section {name!r}" for name in SECTIONS if f"\n## {name}\n" not in card]
    missing += [] if licence_of(card) else ["a line that begins with 'Licence: '"]
    return missing + ([f"what is {OPEN}"] if OPEN in card else [])


def write_card(folder: Path, made_by: str) -> list[str]:
    """Writes a card from a model's settings and scores, and names what a person has to fill in."""
    card = make_card(folder.name, describe(folder), made_by)
    with atomic_file(folder / CARD) as draft:
        draft.write_text(card, encoding="utf-8")
    return lacks(card)


def make_card(name: str, found: Mapping[str, Any], made_by: str) -> str:
    """Words the card of a model that `describe` described."""
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

{_scores(found["scores"])}

## Limits

It knows what it has read: short everyday and technical sentences. It translates sentence by sentence, without what came
before, reads at most {found["settings"]["text"]["max_len"]} pieces at a time, and may be wrong or leave things out
without a sign of it. Names and numbers deserve a second look.

## How to make it again

```sh
{made_by}
```
"""


def corpora_of(sources: Sequence[str]) -> dict[str, Corpus]:
    """Gives the known text in whose folder each source lies; one that is not known is left to be filled in."""
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


def _scores(scores: Mapping[str, Any]) -> str:
    lines = []
    if "bleu" in scores.get("test", {}):
        test = scores["test"]
        on = f" on {test['on']}" if "on" in test else ""
        lines = [
            f"- test BLEU {test['bleu']:.2f}{on}, {test['n']:,} sentences (`{test['bleu_signature']}`)",
            f"- test chrF {test['chrf']:.2f} (`{test['chrf_signature']}`)",
        ]
    if "valid" in scores:
        valid = scores["valid"]
        of_text = f"- validation loss {valid['loss']:.4f} nats a piece"
        lines.append(f"- validation BLEU {valid['bleu']:.2f}, greedy" if "bleu" in valid else of_text)
    return "\n".join(lines) or OPEN
