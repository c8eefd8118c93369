"""The exact split of scores: by content and position, or by frequency."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention, Bilinear, Dot, ScaledDot

# Scores that are linear in the query and in the key, by the very class: another attention may do anything.
BILINEAR = {Dot, ScaledDot, Bilinear}
FOUR = ("content–content", "content–position", "position–content", "position–position")
CONSTANTS = "constants"
Named = dict[str, Float[Tensor, "Q K"]]


@dataclass(frozen=True, eq=False)
class Parts:
    """Queries and keys as sums of three: of the token, of its position, and of what all have in common.

    The last comes from the biases of the projections and of the norm before them.
    """

    q: Float[Tensor, "3 *H Q E"]
    k: Float[Tensor, "3 *H K E2"]

    def of(self, head: int) -> "Parts":
        """Gives the parts of one head."""
        return Parts(self.q[:, head], self.k[:, head])


def by_content_and_position(alone: Attention, parts: Parts) -> Named:
    """Gives the four terms of `(x + e)ᵀ W_Qᵀ W_K (y + f)`, and a fifth that holds all products with a constant."""
    q, k = parts.q, parts.k
    pairs = ((0, 0), (0, 1), (1, 0), (1, 1))
    named = {name: _scored(alone, q[i], k[j]) for name, (i, j) in zip(FOUR, pairs, strict=True)}
    return {**named, CONSTANTS: _scored(alone, q[2], k.sum(0)) + _scored(alone, q[0] + q[1], k[2])}


def by_frequency(
    alone: Attention,
    q: Float[Tensor, "Q E"],
    k: Float[Tensor, "K E2"],
    frequencies: Float[Tensor, " pairs"],
) -> Named:
    """Gives the share of each pair of features, which turn together; an odd last feature does not turn."""
    named = {}
    for pair, frequency in enumerate(frequencies.tolist()):
        only = torch.zeros_like(q)
        only[:, 2 * pair : 2 * pair + 2] = q[:, 2 * pair : 2 * pair + 2]
        named[f"pair {pair}, ω = {frequency:.4g}"] = _scored(alone, only, k)
    n_turned = 2 * len(frequencies)
    if q.shape[-1] > n_turned:
        still = torch.cat([torch.zeros_like(q[:, :n_turned]), q[:, n_turned:]], dim=-1)
        named["not turned"] = _scored(alone, still, k)
    return named


@torch.no_grad()
def _scored(alone: Attention, q: Float[Tensor, "Q E"], k: Float[Tensor, "K E2"]) -> Float[Tensor, "Q K"]:
    return alone.scores(q[None, None], k[None, None])[0, 0]
