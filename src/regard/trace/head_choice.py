"""Which cross-attention heads are asked: their names, and those that are saved with a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from regard.checkpoint import ALIGNMENT, model_folder, read_json

# A row of the weights belongs to the token that the decoder says there, or to the one that it reads there, which it
# said a step before. Which of the two aligns better differs from head to head (Chen et al. 2020, arXiv:2004.14837).
At = Literal["say", "read"]
ATS: tuple[At, At] = ("say", "read")
NAME = re.compile(r"cross(?::(\d+|all))?(?::(\d+|all))?(?::(say|read))?")
HINT = "cross:LAYER:HEAD, such as cross:1:3, with `all` for a mean and :say or :read behind it"


@dataclass(frozen=True)
class HeadChoice:
    """One head, the mean of a layer's heads (no head), or of all heads (no layer), and whose token a row is."""

    layer: int | None
    head: int | None
    at: At

    def __str__(self) -> str:
        return f"cross:{_or_all(self.layer)}:{_or_all(self.head)}:{self.at}"


ALL_HEADS = HeadChoice(None, None, "say")


def all_choices(n_layers: int, n_heads: int) -> list[HeadChoice]:
    """List every head, the mean of each layer and the mean of all, each in both ways."""
    heads = [(layer, head) for layer in range(n_layers) for head in (*range(n_heads), None)]
    return [HeadChoice(*index, at) for index in (*heads, (None, None)) for at in ATS]


def named_choices(name: str, sizes: tuple[int, int]) -> list[HeadChoice]:
    """Return the choices that a name means: one, or two where it does not say whose token a row is."""
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"heads must be named {HINT}, got {name!r}")
    layer, head = (None if part in {None, "all"} else int(part) for part in match.group(1, 2))
    if layer is None and head is not None:
        raise ValueError(f"a head must be one of one layer, got {name!r}: {HINT}")
    for what, number, n in (("layer", layer, sizes[0]), ("head", head, sizes[1])):
        if number is not None and number >= n:
            raise ValueError(f"the {what} of cross attention must lie in 0 … {n - 1}, got {number} in {name!r}")
    ats: Sequence[At] = ATS if match[3] is None else [at for at in ATS if at == match[3]]
    return [HeadChoice(layer, head, at) for at in ats]


def _or_all(number: int | None) -> str:
    return "all" if number is None else str(number)


def load_shown_heads(folder: Path, sizes: tuple[int, int]) -> HeadChoice | None:
    """Return the heads that a trace of a model shows: the best aligning ones by the rows that write a word, if known.

    None where all heads together are the best, or nothing is known. `sizes` are the numbers of layers and heads.
    """
    names = (saved_name(folder, "written"), saved_name(folder, "heads"))
    choices = [named_choices(name, sizes)[0] for name in names if name is not None]
    best = next((choice for choice in choices if choice.at == "say"), ALL_HEADS)
    return None if best == ALL_HEADS else best


def saved_name(folder: Path, field: str) -> str | None:
    """Return the name of heads in a model's folder; None where none were chosen."""
    path = model_folder(folder) / ALIGNMENT
    name = read_json(path).get(field) if path.exists() else None
    if path.exists() and not isinstance(name, str) and (name is not None or field == "heads"):
        raise ValueError(f"{path}: this must name heads, such as cross:1:3:read, got {name!r}")
    return name
