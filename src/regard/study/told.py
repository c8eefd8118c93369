"""Ways to tell a model where its tokens stand: a position scheme with the coordinates that it is given."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.build import build_part
from regard.config import PartSettings, unknown
from regard.position import POSITION

NOTHING = "nothing"  # a coordinate that is 0 everywhere
PROBE = {"width": 8, "d_head": 8, "n_heads": 1, "max_len": 1}


@dataclass(frozen=True)
class Told:
    """One way, as it is called; a scheme that tells nothing is told nothing."""

    name: str
    scheme: str
    coordinates: tuple[str, ...]


def read_told(text: str, axes: Sequence[str]) -> Told:
    """Reads `scheme` or `scheme:axis,axis`; without axes a scheme is told the last ones, or the first if it takes one.

    The first axis of every task is the index of the token in reading order.
    """
    scheme, sign, named = text.partition(":")
    n = build_part(POSITION, PartSettings(scheme), "position", PROBE).n_axes
    if scheme == "none":
        return Told(text, scheme, ())
    given = tuple(named.split(",")) if sign else _usual(n, axes, scheme)
    for name in given:
        if name not in (*axes, NOTHING):
            raise ValueError(unknown(name, [*axes, NOTHING], f"axis of {text!r}"))
    if len(given) != n:
        raise ValueError(f"position {scheme!r} takes {n} coordinates, got {len(given)} in {text!r}")
    return Told(text, scheme, given)


def tell(told: Told, axes: Sequence[str], places: Int[Tensor, "M T A"]) -> Int[Tensor, "M T"] | Int[Tensor, "M T A2"]:
    """Gives the positions as the scheme takes them."""
    blank = torch.zeros_like(places[..., 0])
    columns = [blank if name == NOTHING else places[..., axes.index(name)] for name in told.coordinates or (NOTHING,)]
    return columns[0] if len(columns) == 1 else torch.stack(columns, dim=-1)


def _usual(n: int, axes: Sequence[str], scheme: str) -> tuple[str, ...]:
    if n > len(axes):
        raise ValueError(f"position {scheme!r} takes {n} coordinates, and here are {len(axes)}: {', '.join(axes)}")
    return tuple(axes[:1]) if n == 1 else tuple(axes[-n:])
