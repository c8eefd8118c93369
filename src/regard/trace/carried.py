"""Parts of the stream carried into the scores of a layer: each score is a sum over pairs of parts."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.model.heads import split_heads
from regard.model.multihead import MultiHeadAttention
from regard.trace.parts import AFFINE
from regard.trace.split import BILINEAR


@dataclass(frozen=True, eq=False)
class Side:
    """What is projected to queries or to keys: the stream, its parts, the norm before the layer if any, and places."""

    x: Float[Tensor, "N D"]
    parts: Float[Tensor, "P N D"]
    norm: nn.Module | None
    positions: Int[Tensor, " N"]


@dataclass(frozen=True, eq=False)
class Projected:
    """Queries or keys of all heads: as the layer itself makes them, and those of each part, which add up to them."""

    whole: Float[Tensor, "H N E"]
    parts: Float[Tensor, "P H N E"]

    def of(self, rows: Int[Tensor, " T"]) -> "Projected":
        """Gives those of some tokens."""
        return Projected(self.whole[:, rows], self.parts[:, :, rows])


def splits(attention: Attention, norms: list[nn.Module | None]) -> bool:
    """Tells whether scores are exact sums over pairs: linear in queries and keys, behind norms known to be affine."""
    return type(attention) in BILINEAR and all(norm is None or type(norm) in AFFINE for norm in norms)


@torch.no_grad()
def project(side: Side, heads: MultiHeadAttention, linear: nn.Linear) -> Projected:
    """Takes a stream and its parts through norm, projection and rotation.

    A norm is affine once its own mean and deviation are known, which are those of the whole stream; its bias and the
    projection's go with the first part, which is what all tokens have in common.
    """
    whole, parts, places = side.x[None], side.parts, side.positions[None]
    if side.norm is not None:
        through, common = AFFINE[type(side.norm)](side.norm, whole.double())
        whole, parts = side.norm(whole), through(parts)
        parts = torch.cat([parts[:1] + common, parts[1:]])
    made = parts @ linear.weight.double().T
    if linear.bias is not None:
        made = torch.cat([made[:1] + linear.bias.double(), made[1:]])
    turned: Any = [heads.position.rotate(split_heads(each, heads.n_heads), places) for each in (linear(whole), made)]
    return Projected(turned[0][0], turned[1])


@torch.no_grad()
def pair_terms(attention: Attention, q: Projected, k: Projected) -> Float[Tensor, "P P2 H Q K"]:
    """Gives the score of each part of the queries with each part of the keys; their sum is the score without bias."""
    n = len(k.parts)
    return torch.stack([attention.scores(part.expand(n, *part.shape), k.parts) for part in q.parts])
