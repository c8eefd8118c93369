"""Which language a text is in, as far as its script tells."""

import re
from collections.abc import Sequence

# Han alone is Chinese; with kana it is Japanese. Scripts that many languages share tell nothing.
SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
}


def guess_language(texts: Sequence[str]) -> str | None:
    """Gives zh, ja or ko where most texts have letters of that script, else None."""
    for language, letters in SCRIPTS.items():
        if sum(letters.search(text) is not None for text in texts) * 2 > len(texts):
            return language
    return None
