"""What each bundled model is, in one line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.checkpoint import describe
from regard.zoo import HOME
from regard.zoo.card import licence_of, read_card
from regard.zoo.find import present


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
