"""Scores as sums of content and position terms, of NumPy's arrays and of PyTorch's tensors alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from regard.shapes import Float

FOUR = ("content–content", "content–position", "position–content", "position–position")
CONSTANTS = "constants"
Named = dict[str, Float[Any, "*H Q K"]]
# From queries and keys to their scores, which are linear in either.
Score = Callable[[Float[Any, "*H Q E"], Float[Any, "*H K E2"]], Float[Any, "*H Q K"]]


@dataclass(frozen=True, eq=False)
class Parts:
    """Queries and keys as sums of three: of the token, of its position, and of what all have in common.

    The last comes from the biases of the projections and of the norm before them.
    """

    q: Float[Any, "3 *H Q E"]
    k: Float[Any, "3 *H K E2"]

    def head(self, head: int) -> "Parts":
        """Return the parts of one head."""
        return Parts(self.q[:, head], self.k[:, head])


def by_content_and_position(score: Score, parts: Parts) -> Named:
    """Return the four terms of `(x + e)ᵀ W_Qᵀ W_K (y + f)`, and a fifth that holds all products with a constant."""
    q, k = parts.q, parts.k
    pairs = ((0, 0), (0, 1), (1, 0), (1, 1))
    named = {name: score(q[i], k[j]) for name, (i, j) in zip(FOUR, pairs, strict=True)}
    return {**named, CONSTANTS: score(q[2], k.sum(0)) + score(q[0] + q[1], k[2])}


def by_frequency(
    score: Score, q: Float[Any, "*H Q E"], k: Float[Any, "*H K E2"], frequencies: Float[Any, " pairs"]
) -> Named:
    """Return the share of each pair of features, which turn together; an odd last feature does not turn."""
    named = {}
    for pair, frequency in enumerate(frequencies.tolist()):
        named[f"pair {pair}, ω = {frequency:.4g}"] = score(_only(q, 2 * pair, 2 * pair + 2), k)
    n_turned = 2 * len(frequencies)
    if q.shape[-1] > n_turned:
        named["not turned"] = score(_only(q, n_turned, q.shape[-1]), k)
    return named


def _only(q: Float[Any, "*H Q E"], first: int, end: int) -> Float[Any, "*H Q E"]:
    """Return queries of which all other features are 0."""
    kept = 0 * q
    kept[..., first:end] = q[..., first:end]
    return kept


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms that add up to the scores; `error` is how far their sum is off, as a share of the largest score."""

    names: tuple[str, ...]
    terms: Float[Any, "n *H Q K"]
    total: Float[Any, "*H Q K"]  # the scores, bias included
    error: float

    def __getitem__(self, name: str) -> Float[Any, "*H Q K"]:
        """Return the term of a name."""
        if name not in self.names:
            raise ValueError(f"a term must be one of {', '.join(self.names)}, got {name!r}")
        return self.terms[self.names.index(name)]


def relative_error(difference: Float[Any, "..."], whole: Float[Any, "..."]) -> float:
    """Return the largest difference as a share of the largest number, or itself where all numbers are 0."""
    if 0 in difference.shape:
        return 0.0
    largest = float(abs(whole).max())
    return float(abs(difference).max()) / (largest or 1.0)
