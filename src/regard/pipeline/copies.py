"""What a translation has to hold as its source has it: web and mail addresses, and long numbers."""

import re
from collections import Counter
from collections.abc import Iterator

from regard.pipeline.glossary import TargetVocabulary
from regard.search.constraint import Constraint

ADDRESS = re.compile(
    r"(?:https?|ftp)://[!-~]*[\w/]|www\.[!-~]*[\w/]|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+", re.ASCII
)
# Four digits and more, or with decimals: shorter numbers are often written as words, in Chinese statutes for one.
NUMBER = re.compile(r"(?<![\w.,:/-])(?:\d{4,}(?:\.\d+)?|\d+\.\d+)(?![\w:/-]|[.,]\d)", re.ASCII)
BONUS = 6.0  # of a number, in nats: it may be written otherwise where that is far more probable
LONGEST = 200  # characters of an address


def find_copies(text: str) -> Iterator[tuple[tuple[str, ...], float | None]]:
    """Yield the spellings of each address and number of a text, and what one of them is worth; None is everything."""
    rest = []
    at = 0
    for match in ADDRESS.finditer(text):
        rest.append(text[at : match.start()])
        at = match.end()
        if len(match[0]) <= LONGEST:
            yield (match[0],), None
    for part in (*rest, text[at:]):
        for match in NUMBER.finditer(part):
            yield _spellings(match[0]), BONUS


def _spellings(number: str) -> tuple[str, ...]:
    whole, point, decimals = number.partition(".")
    return tuple(dict.fromkeys((number, f"{int(whole):,}{point}{decimals}"))) if len(whole) < 16 else (number,)


def lost_copies(text: str, target: str) -> list[str]:
    """Return the addresses and numbers of a text of which the target holds no spelling, or too few."""
    wanted = Counter(spellings for spellings, _ in find_copies(text))
    return [each[0] for each, n in wanted.items() if sum(map(target.count, each)) < n]


def copy_constraints(text: str, vocabulary: TargetVocabulary) -> list[Constraint]:
    """Return what the translation of a sentence must contain, or had better contain, since its source does."""
    found = []
    for spellings, bonus in find_copies(text):
        phrases = [phrase for each in spellings for phrase in vocabulary.phrases(each, endings=False)]
        if phrases:  # none where a vocabulary cannot spell it
            found.append(Constraint(tuple(dict.fromkeys(phrases)), bonus))
    return found
