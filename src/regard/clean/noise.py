"""Noise made from a corpus's own pairs, by which a classifier learns what noise looks like there."""

import random
from collections.abc import Sequence
from itertools import pairwise

# What is made, named by the reasons for which it is dropped; a classifier's first class is a pair as it came.
KINDS = ("misaligned", "truncated", "copy", "language")
Texts = tuple[str, str]
VOWELS, CONSONANTS = "aeiou", "bcdfghjklmnpqrstvwxyz"
LEAST, MOST = 0.25, 0.8  # share of a text that a cut leaves
FROM_START = 0.85  # share of cuts that leave the beginning
AT_WORD = 0.8  # share of cuts between words, where there are spaces


def make_noise(pairs: Sequence[Texts], rng: random.Random) -> dict[str, list[Texts]]:
    """Return noise of each kind, most of them as often as there are pairs."""
    return {
        "misaligned": shuffled(pairs, rng) + shuffled_alike(pairs, rng),
        "truncated": truncated(pairs, rng),
        "copy": copied(pairs[: len(pairs) // 4]),
        "language": estranged(pairs[: len(pairs) // 4], rng),
    }


def shuffled(pairs: Sequence[Texts], rng: random.Random) -> list[Texts]:
    """Return half of the sources with targets of other pairs."""
    order = list(range(len(pairs)))
    rng.shuffle(order)
    half = order[: len(order) // 2]
    return [(pairs[a][0], pairs[b][1]) for a, b in zip(half, half[1:] + half[:1], strict=True) if _differ(pairs, a, b)]


def shuffled_alike(pairs: Sequence[Texts], rng: random.Random) -> list[Texts]:
    """Return half of the sources with targets of other pairs that are as long as their own: lengths tell nothing."""
    order = sorted(range(len(pairs)), key=lambda i: (len(pairs[i][1]) // 3, rng.random()))
    found = [(pairs[a][0], pairs[b][1]) for a, b in pairwise(order) if _differ(pairs, a, b)]
    rng.shuffle(found)
    return found[: len(pairs) // 2]


def _differ(pairs: Sequence[Texts], a: int, b: int) -> bool:
    return pairs[a][0] != pairs[b][0] and pairs[a][1] != pairs[b][1]


def truncated(pairs: Sequence[Texts], rng: random.Random) -> list[Texts]:
    """Return the pairs with one side cut, as far as it can be."""
    found = []
    for src, tgt in pairs:
        cut_src = rng.random() < 0.5
        part = _cut(src if cut_src else tgt, rng)
        if part:
            found.append((part, tgt) if cut_src else (src, part))
    return found


def _cut(text: str, rng: random.Random) -> str:
    share, keep_start = rng.uniform(LEAST, MOST), rng.random() < FROM_START
    parts = text.split(" ") if " " in text and rng.random() < AT_WORD else list(text)
    n = round(len(parts) * share)
    if not 0 < n < len(parts):
        return ""
    kept = parts[:n] if keep_start else parts[-n:]
    return (" " if len(parts) < len(text) else "").join(kept).strip()


def copied(pairs: Sequence[Texts]) -> list[Texts]:
    """Return each side with itself."""
    return [(text, text) for pair in pairs for text in pair]


def estranged(pairs: Sequence[Texts], rng: random.Random) -> list[Texts]:
    """Return the pairs with one side of the next pair in no language: its letters stand for others of their kind."""
    found = []
    for (src, tgt), (next_src, next_tgt) in pairwise(pairs):
        if rng.random() < 0.5:
            found.append((_replace_letters(next_src, rng), tgt))
        else:
            found.append((src, _replace_letters(next_tgt, rng)))
    return found


def _replace_letters(text: str, rng: random.Random) -> str:
    """Exchange vowels for vowels, consonants for consonants, and other letters for those of the text in any order."""
    table: dict[str, str] = {}
    for letters in (VOWELS, CONSONANTS, sorted({each for each in text if each.isalpha() and not each.isascii()})):
        order = list(letters)
        rng.shuffle(order)
        table |= dict(zip(letters, order, strict=True))
    return text.lower().translate(str.maketrans(table))
