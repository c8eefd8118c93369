"""Which language a text is in, by py3langid: naive Bayes on byte n-grams (Lui and Baldwin 2012)."""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

import numpy as np

from regard.data.normalise import language_code
from regard.extras import require

# Labels that are told apart badly in a line, or not at all in writing: a text in one of them may pass as another.
# The first of each names it.
GROUPS = (
    ("zh", "wuu", "yue", "cmn", "zho", "lzh"),
    ("en", "eng", "pcm"),
    ("no", "nb", "nn", "nob", "nno", "da"),
    ("hr", "sr", "bs"),
    ("id", "ms", "ind", "msa"),
    ("de", "deu", "ger", "lb"),
    ("fr", "fra", "fre", "wa", "gcr", "gcf"),
    ("it", "ita", "vec", "lij"),
    ("ar", "ara", "arz", "ary"),
    ("es", "spa", "ext", "an"),
    ("pt", "por", "gl"),
    ("cs", "ces", "cze"),
    ("ja", "jpn"),
    ("ko", "kor"),
    ("ru", "rus"),
    ("nl", "nld", "dut"),
    ("pl", "pol"),
)
ANYTHING = "zxx"  # the label of text that is in no language
LEAST = 1e-9  # probability, below which all are alike
GUESSES = 2000  # texts by which a language is guessed
LONG = 20  # bytes of a text that is good to guess by
ENOUGH = 300  # characters of a text that are looked at
_LETTER = re.compile(r"[^\W\d_]")


class LanguageIdentifier:
    """Tells how much likelier another language is than the one that a text should be in."""

    def __init__(self) -> None:
        require("py3langid", "telling languages apart (leave it out with --skip language)")
        library = import_module("py3langid.langid")
        self.model = library.LanguageIdentifier.from_model_file(library.MODEL_FILE, norm_probs=True)
        self.group = {label: group[0] for group in GROUPS for label in group}

    def name(self, code: str) -> str:
        """Return the label of a code such as zh-CN or eng; raise ValueError for one that is not known."""
        code = language_code(code)
        group = next((each for each in GROUPS if code in each), (code,))
        labels = set(self.model.labels)
        if labels.isdisjoint(group):
            near = get_close_matches(code, sorted(labels), 1) or ["en"]
            raise ValueError(
                f"a language must be one that py3langid tells apart, got {code!r}, is it {near[0]!r}? "
                "Otherwise leave the rule out with --skip language"
            )
        return self.group.get(code, code)

    def guess(self, texts: Sequence[str]) -> str | None:
        """Return the language that most of the texts are in, if more than half of them are."""
        good = [text for text in texts if len(text.encode()) >= LONG][:GUESSES] or list(texts[:GUESSES])
        votes = Counter(self._group(self.model.classify(text)[0]) for text in good)
        name, n = votes.most_common(1)[0] if votes else ("", 0)
        return name if 2 * n > len(good) and name != ANYTHING else None

    def odds(self, text: str, expected: str) -> float:
        """Return log p(the likeliest other language) − log p(the expected one); 0 for a text without letters."""
        if not _LETTER.search(text):
            return 0.0
        label, chance = self.model.classify(text[:ENOUGH])
        if self._group(label) == expected:  # most texts: all others together are no likelier than the rest
            return min(0.0, float(np.log(max(1 - chance, LEAST) / chance)))
        own = other = LEAST
        for label, chance in self.model.rank(text[:ENOUGH]):
            if label == ANYTHING:
                continue
            if self._group(label) == expected:
                own += chance
            elif other == LEAST:
                other += chance
            if own > LEAST and other > LEAST:
                break
        return float(np.log(other / own))

    def _group(self, label: str) -> str:
        return self.group.get(label, label)
