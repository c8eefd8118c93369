"""The terms that scores are sums of, and how far their sum is off."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms that add up to the scores; `error` is how far their sum is off, as a share of the largest score."""

    names: tuple[str, ...]
    terms: Float[Tensor, "n *H Q K"]
    total: Float[Tensor, "*H Q K"]  # the scores, bias included
    error: float

    def __getitem__(self, name: str) -> Float[Tensor, "*H Q K"]:
        """Gives the term of a name."""
        if name not in self.names:
            raise ValueError(f"a term must be one of {', '.join(self.names)}, got {name!r}")
        return self.terms[self.names.index(name)]


def make_terms(named: dict[str, Float[Tensor, "Q K"]], total: Float[Tensor, "Q K"]) -> Terms:
    """Measures how well the terms of one head add up to its scores."""
    terms = torch.stack(list(named.values()))
    return Terms(tuple(named), terms, total, share(terms.double().sum(0) - total.double(), total))


def stacked(heads: list[Terms]) -> Terms:
    """Sets the terms of several heads side by side."""
    totals, terms = torch.stack([one.total for one in heads]), torch.stack([one.terms for one in heads], dim=1)
    return Terms(heads[0].names, terms, totals, max(one.error for one in heads))


def share(difference: Float[Tensor, "..."], whole: Float[Tensor, "..."]) -> float:
    """Gives the largest difference as a share of the largest number, or itself where all numbers are 0."""
    if difference.numel() == 0:
        return 0.0
    largest = float(whole.abs().max())
    return float(difference.abs().max()) / (largest or 1.0)
