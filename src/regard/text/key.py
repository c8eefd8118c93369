"""What two sentences have in common that differ in case, punctuation or spaces alone."""

import re
import unicodedata

_NO_WORD = re.compile(r"[\W_]+")  # all but letters and digits; marks are among it


def key_of(text: str) -> str:
    """Keeps letters, digits and marks (categories L, N and M), case-folded (NFKC); a text without any is its own key.

    >>> key_of("Who's Tom? ") == key_of("“WHOS TOM”")
    True
    """
    folded = text.casefold() if text.isascii() else _folded(text)
    return _NO_WORD.sub("" if folded.isascii() else _marks, folded) or text


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _marks(found: re.Match[str]) -> str:
    return "".join(sign for sign in found[0] if unicodedata.category(sign)[0] == "M")
