"""A model, and the parallel text that it is to read."""

from itertools import islice
from typing import Any

from regard.plot.terminal import say

SUPPOSED = ("zh", "en")  # languages of a text in a format that names them, where no model does


def read_with(
    model: str | None, data: list[str], device: str, reverse: bool = False, most: int | None = None
) -> tuple[str, Any, list[tuple[str, str]]]:
    """Opens a model, or the bundled one that suits the text; gives its name, itself, and the pairs that are wanted."""
    from regard.decode.load import load
    from regard.text.corpus import read_pairs

    turn = -1 if reverse else 1
    translator = None if model is None else load(model, device=device)
    languages = SUPPOSED if translator is None else (translator.src_lang, translator.tgt_lang)
    read = read_pairs(data, *languages[::turn])
    pairs = [(pair.tgt, pair.src) if reverse else (pair.src, pair.tgt) for pair in islice(read, most)]
    if model is not None:
        return model, translator, pairs
    name = _suiting(pairs)
    return name, load(name, device=device), pairs


def _suiting(pairs: list[tuple[str, str]]) -> str:
    from regard.zoo.pick import pick

    name = pick(None, None, [src for src, _ in pairs[:100]])
    say(f"[dim]reading with the bundled model {name}[/]")
    return name
