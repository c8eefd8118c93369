"""Tasks with coordinates; upper bounds."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from regard.build import build_part
from regard.config import PartSettings, unknown
from regard.position import POSITION

# Draws other examples of the same classes from some: for training only.
Vary = Callable[[Shaped[Tensor, "B T *P"], torch.Generator], Shaped[Tensor, "B T *P"]]


@dataclass(frozen=True, eq=False)
class Examples:
    """Numbered examples; `places` has a row for each of them, or one where all stand alike."""

    tokens: Shaped[Tensor, "N T *P"]  # patches as numbers, or words as ids
    places: Int[Tensor, "M T A"]  # one column for each of the task's axes
    lengths: Int[Tensor, " N"]  # tokens from here on are padding
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, numbers: Int[Tensor, " B"]) -> "Examples":
        """Takes some examples, in any order."""
        places = self.places if len(self.places) == 1 else self.places[numbers]
        return Examples(self.tokens[numbers], places, self.lengths[numbers], self.labels[numbers])

    def to(self, device: torch.device) -> "Examples":
        """Brings them to a device."""
        return Examples(*(part.to(device) for part in (self.tokens, self.places, self.lengths, self.labels)))

    def shuffled(self, seed: int) -> "Examples":
        """Shuffles the real tokens of each example, while the places stay where they were."""
        N, T = self.tokens.shape[:2]
        draws = torch.rand(N, T, generator=torch.Generator().manual_seed(seed))
        behind = torch.arange(T) >= self.lengths.cpu()[:, None]  # padding stays at the end
        order = (draws + behind).argsort(dim=1).to(self.tokens.device)
        return replace(self, tokens=self.tokens[torch.arange(N, device=order.device)[:, None], order])


@dataclass(frozen=True, eq=False)
class Task:
    """One question with examples to learn from, to choose by, and to be judged by."""

    name: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]  # what each column of the places is
    size: int  # numbers in a patch, or words in the vocabulary
    train: Examples
    valid: Examples
    test: Examples
    vary: Vary | None = None


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


def best_possible(examples: Examples, places: Int[Tensor, "M T *axes"]) -> float:
    """Gives the largest share of these examples that a reader of sets can get right.

    A model that sees its tokens as a set of pairs (token, place) says the same wherever the sets are the same. So of
    examples with equal sets it gets no more right than those of their commonest class: a proof for these very examples,
    not an estimate. Where all sets differ it says nothing, and is 1.
    """
    groups: dict[bytes, Counter[int]] = defaultdict(Counter)
    for number, (length, label) in enumerate(zip(examples.lengths.tolist(), examples.labels.tolist(), strict=True)):
        tokens = examples.tokens[number, :length].reshape(length, -1)
        where = places[number if len(places) > 1 else 0, :length].reshape(length, -1)
        pairs = np.concatenate([where.cpu().double().numpy(), tokens.cpu().double().numpy()], axis=1)
        groups[pairs[np.lexsort(pairs.T)].tobytes()][label] += 1
    return sum(max(labels.values()) for labels in groups.values()) / len(examples)
