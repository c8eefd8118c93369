"""A text that the project makes itself: strings of letters, to be written backwards."""

import random
from pathlib import Path

from regard.text.whole import whole_file

PLAN = Path(__file__).with_name("reversal.toml")  # the ablation that needs no text but this
ABOUT = (
    "The text is made by the program: strings of letters, to be written backwards (`study/reversal.py`); settings and "
    "variants are in `study/reversal.toml`. It shows that parts differ, not which is better for a language."
)
LETTERS = "abcdefghijklmnop"
SIZES = {"train": 4000, "valid": 200, "test": 200}


def write_reversals(folder: Path, shortest: int = 4, longest: int = 10, seed: int = 0) -> None:
    """Writes three files of pairs that share no string; what is there already stays."""
    names = [folder / f"{name}.tsv" for name in SIZES]
    if all(path.exists() for path in names):
        return
    folder.mkdir(parents=True, exist_ok=True)
    pairs = iter(draw_reversals(sum(SIZES.values()), shortest, longest, seed))
    for path, n in zip(names, SIZES.values(), strict=True):
        with whole_file(path) as draft:
            lines = (f"{src}\t{tgt}\n" for src, tgt in (next(pairs) for _ in range(n)))
            draft.write_text("".join(lines), encoding="utf-8")


def draw_reversals(n: int, shortest: int, longest: int, seed: int) -> list[tuple[str, str]]:
    """Draws different strings, letters apart, each with its reversal."""
    chance = random.Random(seed)
    found: dict[str, str] = {}
    while len(found) < n:
        letters = [chance.choice(LETTERS) for _ in range(chance.randint(shortest, longest))]
        found[" ".join(letters)] = " ".join(reversed(letters))
    return list(found.items())
