"""A made language pair: sentences of a dictionary of 300 words, with noise planted in them."""

import random

from regard.clean.noise import truncated

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def dictionary(n=300, seed=1):
    rng = random.Random(seed)
    words = sorted({"".join(rng.choices(SYLLABLES, k=rng.randint(2, 3))) for _ in range(4 * n)})
    rng.shuffle(words)
    return list(zip(words[:n], words[n : 2 * n], strict=True))


def translations(n, seed=2):
    """Return sentences of 4 to 10 words and their translations, word by word and in reverse order."""
    rng, entries = random.Random(seed), dictionary()
    pairs = []
    for _ in range(n):
        some = rng.choices(entries, k=rng.randint(4, 10))
        src, tgt = " ".join(a for a, _ in some), " ".join(b for _, b in reversed(some))
        pairs.append((f"{src}.", f"{tgt}."))
    return pairs


def planted(n=4000, share=0.1, seed=3):
    """Return pairs with noise among them, and what each is: ok, shuffled, truncated or copied."""
    pairs, kinds = translations(n), ["ok"] * n
    places = random.Random(seed).sample(range(n), int(n * share))
    third = len(places) // 3
    others = [pairs[place][1] for place in places[1:third] + places[:1]]
    for place, tgt in zip(places[:third], others, strict=True):
        pairs[place], kinds[place] = (pairs[place][0], tgt), "shuffled"
    for place in places[third : 2 * third]:
        (cut,) = truncated([pairs[place]], random.Random(place)) or [pairs[place]]
        kinds[place] = "truncated" if cut != pairs[place] else "ok"
        pairs[place] = cut
    for place in places[2 * third :]:
        pairs[place], kinds[place] = (pairs[place][0], pairs[place][0]), "copied"
    return pairs, kinds


def write(path, pairs):
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    return path
