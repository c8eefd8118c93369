"""Which heads of cross attention are asked for an alignment, and by what name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# A row of the weights belongs to the token that the decoder says there, or to the one that it reads there, which it
# said a step before. Which of the two aligns better differs from head to head (Chen et al. 2020, arXiv:2004.14837).
At = Literal["say", "read"]
ATS: tuple[At, At] = ("say", "read")
NAME = re.compile(r"cross(?::(\d+|all))?(?::(\d+|all))?(?::(say|read))?")
HINT = "cross:LAYER:HEAD, such as cross:1:3, with `all` for a mean and :say or :read behind it"


@dataclass(frozen=True)
class Choice:
    """One head, the mean of a layer's heads (no head), or of all heads (no layer), and whose token a row is."""

    layer: int | None
    head: int | None
    at: At

    def __str__(self) -> str:
        return f"cross:{_or_all(self.layer)}:{_or_all(self.head)}:{self.at}"


ALL_HEADS = Choice(None, None, "say")


def all_choices(n_layers: int, n_heads: int) -> list[Choice]:
    """Lists every head, the mean of each layer and the mean of all, each in both ways."""
    heads = [(layer, head) for layer in range(n_layers) for head in (*range(n_heads), None)]
    return [Choice(*place, at) for place in (*heads, (None, None)) for at in ATS]


def named_choices(name: str, sizes: tuple[int, int]) -> list[Choice]:
    """Gives the choices that a name means: one, or two where it does not say whose token a row is."""
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
    return [Choice(layer, head, at) for at in ats]


def _or_all(number: int | None) -> str:
    return "all" if number is None else str(number)
