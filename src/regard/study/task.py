"""Classification tasks whose tokens have coordinates; what can be known of them."""

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
    """Numbered examples; `positions` has a row for each of them, or one that all share."""

    tokens: Shaped[Tensor, "N T *P"]  # patches as numbers, or words as ids
    positions: Int[Tensor, "M T A"]  # one column for each of the task's axes
    lengths: Int[Tensor, " N"]  # tokens from here on are padding
    labels: Int[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, numbers: Int[Tensor, " B"]) -> "Examples":
        """Return some examples, in any order."""
        positions = self.positions if len(self.positions) == 1 else self.positions[numbers]
        return Examples(self.tokens[numbers], positions, self.lengths[numbers], self.labels[numbers])

    def to(self, device: torch.device) -> "Examples":
        return Examples(*(part.to(device) for part in (self.tokens, self.positions, self.lengths, self.labels)))

    def shuffled(self, seed: int) -> "Examples":
        """Permute the tokens of each example, padding aside, while the positions stay."""
        N, T = self.tokens.shape[:2]
        draws = torch.rand(N, T, generator=torch.Generator().manual_seed(seed))
        behind = torch.arange(T) >= self.lengths.cpu()[:, None]  # padding stays at the end
        order = (draws + behind).argsort(dim=1).to(self.tokens.device)
        return replace(self, tokens=self.tokens[torch.arange(N, device=order.device)[:, None], order])


@dataclass(frozen=True, eq=False)
class Task:
    """A classification task with examples for training, validation and test."""

    name: str
    classes: tuple[str, ...]
    axes: tuple[str, ...]  # what each column of the positions is
    size: int  # numbers in a patch, or words in the vocabulary
    train: Examples
    valid: Examples
    test: Examples
    vary: Vary | None = None


NOTHING = "nothing"  # a coordinate that is 0 everywhere
PROBE = {"width": 8, "d_head": 8, "n_heads": 1, "max_len": 1}


@dataclass(frozen=True)
class Encoding:
    """A position encoding by name, and the coordinates it receives; `none` receives none."""

    name: str
    scheme: str
    coordinates: tuple[str, ...]


def parse_encoding(text: str, axes: Sequence[str]) -> Encoding:
    """Parse `scheme` or `scheme:axis,axis`; without axes a scheme receives the last ones, or the first if it takes one.

    The first axis of every task is the index of the token in reading order.
    """
    scheme, sign, named = text.partition(":")
    n = build_part(POSITION, PartSettings(scheme), "position", PROBE).n_axes
    if scheme == "none":
        return Encoding(text, scheme, ())
    given = tuple(named.split(",")) if sign else _default_axes(n, axes, scheme)
    for name in given:
        if name not in (*axes, NOTHING):
            raise ValueError(unknown(name, [*axes, NOTHING], f"axis of {text!r}"))
    if len(given) != n:
        raise ValueError(f"position {scheme!r} takes {n} coordinates, got {len(given)} in {text!r}")
    return Encoding(text, scheme, given)


def coordinates(
    encoding: Encoding, axes: Sequence[str], positions: Int[Tensor, "M T A"]
) -> Int[Tensor, "M T"] | Int[Tensor, "M T A2"]:
    """Return the positions that an encoding receives."""
    zeros, names = torch.zeros_like(positions[..., 0]), encoding.coordinates or (NOTHING,)
    columns = [zeros if name == NOTHING else positions[..., axes.index(name)] for name in names]
    return columns[0] if len(columns) == 1 else torch.stack(columns, dim=-1)


def _default_axes(n: int, axes: Sequence[str], scheme: str) -> tuple[str, ...]:
    if n > len(axes):
        raise ValueError(f"position {scheme!r} takes {n} coordinates, and here are {len(axes)}: {', '.join(axes)}")
    return tuple(axes[:1]) if n == 1 else tuple(axes[-n:])


def oracle_accuracy(examples: Examples, positions: Int[Tensor, "M T *axes"]) -> float:
    """Return the largest accuracy on these examples of any model that reads sets.

    A model that sees its tokens as a set of pairs (token, position) gives equal sets the same answer. So of examples
    with equal sets it gets at most those of their most frequent class right: a proof for these very examples, not an
    estimate. Where all sets differ the bound is 1.
    """
    groups: dict[bytes, Counter[int]] = defaultdict(Counter)
    for number, (length, label) in enumerate(zip(examples.lengths.tolist(), examples.labels.tolist(), strict=True)):
        tokens = examples.tokens[number, :length].reshape(length, -1)
        where = positions[number if len(positions) > 1 else 0, :length].reshape(length, -1)
        pairs = np.concatenate([where.cpu().double().numpy(), tokens.cpu().double().numpy()], axis=1)
        groups[pairs[np.lexsort(pairs.T)].tobytes()][label] += 1
    return sum(max(labels.values()) for labels in groups.values()) / len(examples)
