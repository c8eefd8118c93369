"""One pair of sentences in the form in which all of the program knows text."""

import re
import unicodedata
from dataclasses import dataclass

# Controls that are no white space, zero-width spaces and marks of byte order, and halves of surrogate pairs.
_NOISE = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u200b\u2060\ufeff\ud800-\udfff]")


@dataclass(frozen=True)
class Pair:
    """A sentence, its translation, the file and line where they stand, and the number of their source."""

    src: str
    tgt: str
    where: str
    origin: int = 0


def make_pair(src: str, tgt: str, where: str) -> Pair:
    """Makes a pair of sentences as they were read."""
    return Pair(normalise(src), normalise(tgt), where)


def normalise(text: str) -> str:
    """Composes characters (NFC), drops control characters and folds white space; all else stays as it was written."""
    if not text.isascii():
        # The sign with which tokenizers mark a space would come back as one.
        text = unicodedata.normalize("NFC", _NOISE.sub("", text).replace("\u2581", "_"))
    elif not text.isprintable():
        text = _NOISE.sub("", text)
    return " ".join(text.split())
