"""Small corpora that tests of texts share, drawn by chance but always the same."""

import random

from hypothesis import strategies as st

# Signs of three scripts, and words of two lengths; sentences of any number of them are all different.
CHINESE = "介绍一下西安我你他的是不了在有人这上大来和国地到以说时要就出会可"
ENGLISH = (
    "introduce",
    "the",
    "city",
    "please",
    "tell",
    "me",
    "about",
    "what",
    "where",
    "small",
    "red",
    "house",
    "bird",
)


def sentences(n: int, seed: int = 1) -> list[tuple[str, str]]:
    """Draw pairs of a Chinese and an English sentence; each has a number of its own."""
    chance = random.Random(seed)
    pairs = []
    for i in range(n):
        length = chance.randint(2, 8)
        src = "".join(chance.choices(CHINESE, k=2 * length)) + f"{seed}第{i}，"
        tgt = " ".join(chance.choices(ENGLISH, k=length)) + f" {seed} no. {i}."
        pairs.append((src, tgt))
    return pairs


def as_tsv(pairs) -> str:
    """Write pairs as lines of two columns."""
    return "".join(f"{src}\t{tgt}\n" for src, tgt in pairs)


def any_text(odd: str, max_size: int = 8) -> st.SearchStrategy[str]:
    """Draw texts of any signs, half of them the odd ones; the union of two alphabets would hardly ever draw these."""
    return st.lists(st.sampled_from(odd) | st.text(max_size=2), max_size=max_size).map("".join)
