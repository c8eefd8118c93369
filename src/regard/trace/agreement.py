"""How well the links that heads give agree: with those of other heads, with each other, with gold ones."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.score.alignment import Gold, error_rate
from regard.trace.reading import Read


def to_source(soft: Float[Tensor, "*C t s"]) -> Bool[Tensor, "*C t s"]:
    """Links each target joint to the source joint that it looks at most, if it looks at any."""
    best = torch.zeros_like(soft, dtype=torch.bool).scatter_(-1, soft.argmax(-1, keepdim=True), True)
    return best & (soft > 0)


def to_target(soft: Float[Tensor, "*C t s"]) -> Bool[Tensor, "*C t s"]:
    """Links each source joint to the target joint that looks at it most, if any does."""
    return to_source(soft.transpose(-1, -2)).transpose(-1, -2)


def agree(one: Sequence[Bool[Tensor, "C _ _"]], other: Sequence[Bool[Tensor, "C2 _ _"]]) -> Float[Tensor, "C C2"]:
    """Gives `2 |A ∩ B| / (|A| + |B|)` of the links of any two choices over all pairs."""
    shared, n_one, n_other = (
        torch.zeros(len(one[0]), len(other[0])),
        torch.zeros(len(one[0])),
        torch.zeros(len(other[0])),
    )
    for left, right in zip(one, other, strict=True):
        a, b = left.flatten(1).float(), right.flatten(1).float()
        shared += a @ b.T
        n_one += a.sum(1)
        n_other += b.sum(1)
    return 2 * shared / (n_one[:, None] + n_other).clamp(min=1.0)


def agree_with_gold(
    reads: Sequence[Read], links: Sequence[Bool[Tensor, "C _ _"]], gold: Sequence[Gold]
) -> Float[Tensor, " C"]:
    """Gives the alignment error rate of each choice."""
    counts = torch.zeros(
        4, len(links[0]), dtype=torch.int64
    )  # links among the sure, among the possible, all, and sure ones
    for read, found, each in zip(reads, links, gold, strict=True):
        words = spread(read, found)
        sure, possible = (_table(chosen, words) for chosen in (each.sure, each.possible))
        counts[0] += (words & sure).sum((1, 2))
        counts[1] += (words & possible).sum((1, 2))
        counts[2] += words.sum((1, 2))
        counts[3] += sure.sum()
    return torch.tensor([error_rate(*each) for each in counts.T.tolist()])


def spread(read: Read, links: Shaped[Tensor, "*C t s"]) -> Shaped[Tensor, "*C T S"]:
    """Gives each word what its joint has."""
    rows, columns = ([n for n, joint in enumerate(each) for _ in joint] for each in (read.tgt.joints, read.src.joints))
    return links[..., rows, :][..., columns]


def _table(links: frozenset[tuple[int, int]], like: Bool[Tensor, "C T S"]) -> Bool[Tensor, "T S"]:
    table = torch.zeros(like.shape[1:], dtype=torch.bool)
    for i, j in links:
        table[j, i] = True
    return table
