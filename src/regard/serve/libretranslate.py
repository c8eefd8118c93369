"""What LibreTranslate's API has besides translation: detected languages with a confidence, and text between tags."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from regard.data.normalise import SCRIPTS
from regard.serve.schema_api import Detected
from regard.zoo import LATIN_WORD, LETTERS

# Latin script alone may be many a language: words that are frequent in English and rare elsewhere tell it.
ENGLISH_WORDS = (
    "the of and is are was were you he she they we it's this that these those what who how why when where which with "
    "from have has had not i'm do does don't did will would can could should my your his her their our there here been "
    "please thank thanks hello to for"
)
ENGLISH = frozenset(ENGLISH_WORDS.split(" "))
WORDS = re.compile(r"[a-z']+")
UNPROVEN = 0.5  # of Latin words without one of these


def detect_languages(text: str) -> list[Detected]:
    """Return the languages that the scripts of a text tell, the likeliest first, each with a confidence in per cent.

    It is the share of the words in that script, where a Chinese character counts as a word; of Latin words that might
    be of any language, half. Han beside kana are Japanese. A text without letters may be anything: English, at 0.
    """
    latin = LATIN_WORD.findall(text)
    counts = Counter(zh=len(SCRIPTS["zh"].findall(text)), ko=len(SCRIPTS["ko"].findall(text)), en=len(latin))
    kana = len(SCRIPTS["ja"].findall(text))
    if kana:
        counts["ja"] = kana + counts.pop("zh")
    others = len(LETTERS.findall(text)) - sum(map(len, latin)) - sum(counts[name] for name in ("zh", "ko", "ja"))
    n_words = sum(counts.values()) + max(0, others)
    proven = not ENGLISH.isdisjoint(WORDS.findall(text.lower())) and all(word.isascii() for word in latin)
    shares = {name: count / n_words for name, count in counts.most_common() if count}
    if "en" in shares and not proven:
        shares["en"] *= UNPROVEN
    ranked = sorted(shares, key=lambda name: -shares[name])
    return [Detected(name, round(100 * shares[name], 1)) for name in ranked] or [Detected("en", 0.0)]


# Comments, and elements whose content is no text, are kept whole.
_TAG = re.compile(r"(<!--.*?-->|<(script|style|code|pre)\b.*?</\2\s*>|<[^<>]*>)", re.DOTALL | re.IGNORECASE)
_PADDED = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


@dataclass(frozen=True)
class Markup:
    """An HTML text as stretches that are kept and stretches to translate, in turn; the first is kept."""

    kept: list[str]
    texts: list[str]

    def join(self, translations: Sequence[str]) -> str:
        """Return the text with its tags, and translations instead of what stood between them."""
        escaped = (html.escape(text, quote=False) for text in translations)
        return self.kept[0] + "".join(a + b for a, b in zip(escaped, self.kept[1:], strict=True))


def split_markup(text: str) -> Markup:
    """Separate the text between tags, with entities resolved, from tags and white space."""
    kept, texts, end = [""], [], 0
    for start, stop in [*((match.start(), match.end()) for match in _TAG.finditer(text)), (len(text), len(text))]:
        padded = _PADDED.fullmatch(text, end, start)
        assert padded is not None, "any text has this form"
        before, inside, after = padded.groups()
        kept[-1] += before
        if LETTERS.search(html.unescape(inside)):
            texts.append(html.unescape(inside))
            kept.append("")
        else:
            kept[-1] += inside
        kept[-1] += after + text[start:stop]
        end = stop
    return Markup(kept, texts)
