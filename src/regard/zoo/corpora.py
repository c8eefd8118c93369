"""Texts that bundled models learn from, with the licences and names that a card must give."""

from dataclasses import dataclass


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
