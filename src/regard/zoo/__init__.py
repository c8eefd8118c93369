"""The models that come with the package: the table of their names, each a folder beside this file."""

from dataclasses import dataclass
from pathlib import Path


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
