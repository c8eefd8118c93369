"""Overlong text, cut where its sentences end."""

import re
from collections.abc import Callable
from itertools import pairwise

# A Latin sign counts only before white space, so that 3.14 stays whole; closing quotes and brackets go with the end.
SENTENCE_END = re.compile(r"""[。！？；…]+["'”’」』）》]*\s*|[.!?;]+["'”’)\]]*\s+|\n\s*""")
CLAUSE_END = re.compile(r"[，、：]+\s*|[,:]\s+")


def sentences(text: str, count: Callable[[str], int], max_len: int) -> list[str]:
    """Cuts a text into sentences; one that counts more than `max_len` is cut at its commas, into as few as possible.

    Joined again the parts are the text. Where there is no place to cut, ValueError says how long the stretch is.
    """
    return [part for sentence in cut(text, SENTENCE_END) for part in _clauses(sentence, count, max_len)]


def cut(text: str, end: re.Pattern[str]) -> list[str]:
    """Cuts a text after each match."""
    places = sorted({0, len(text), *(match.end() for match in end.finditer(text))})
    return [text[start:stop] for start, stop in pairwise(places)]


def _clauses(sentence: str, count: Callable[[str], int], max_len: int) -> list[str]:
    if count(sentence) <= max_len:
        return [sentence]
    packed = [""]
    for clause in cut(sentence, CLAUSE_END):
        if count(packed[-1] + clause) <= max_len:
            packed[-1] += clause
        else:
            packed.append(clause)
    if (longest := max(count(part) for part in packed)) > max_len:
        raise ValueError(
            f"{longest} pieces without a sentence's end or a comma are more than the {max_len} that the model reads: "
            f"shorten or cut the text at {sentence[:30]!r}"
        )
    return [part for part in packed if part]
