"""Groups of tokens: the mean of each, and how much of the variance lies between them."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

LEAST = 5  # tokens that a group needs to have a mean of its own


def pooled(labels: Int[Tensor, " N"], least: int = LEAST) -> Int[Tensor, " N"]:
    """Numbers groups from 0; those with too few tokens become one, so that no token is the mean of itself alone."""
    _, groups, counts = labels.unique(return_inverse=True, return_counts=True)
    rare = counts[groups] < least
    return torch.where(rare, torch.full_like(groups, len(counts)), groups).unique(return_inverse=True)[1]


def group_means(x: Float[Tensor, "N D"], groups: Int[Tensor, " N"]) -> Float[Tensor, "G D"]:
    """Gives the mean of each group, in the order of their numbers."""
    sums = x.new_zeros(int(groups.max()) + 1, x.shape[1]).index_add(0, groups, x)
    return sums / torch.bincount(groups)[:, None]


def joint_means(
    x: Float[Tensor, "N D"], one: Int[Tensor, " N"], other: Int[Tensor, " N"], rounds: int = 50
) -> tuple[Float[Tensor, "G D"], Float[Tensor, "G2 D"]]:
    """Gives the least-squares fit of x by a sum of two groupings, each free of what the other explains.

    Means are taken in turn of what the other grouping leaves, until nothing changes; plain means would mix the two,
    as full stops make the last places alike.
    """
    x = x - x.mean(0)
    of_other = x.new_zeros(int(other.max()) + 1, x.shape[1])
    of_one = group_means(x, one)
    for _ in range(rounds):
        of_other = group_means(x - of_one[one], other)
        of_one = group_means(x - of_other[other], one)
    return of_one, of_other


def explained(x: Float[Tensor, "N D"], groups: Int[Tensor, " N"]) -> Float[Tensor, " D"]:
    """Gives for each feature `η² = Σ_g n_g (mean_g − mean)² / Σ (x − mean)²`; 0 where a feature never changes."""
    x = x.double() - x.double().mean(0)
    between = group_means(x, groups)[groups].square().sum(0)
    total = x.square().sum(0)
    return torch.where(total > 0, between / total.clamp(min=torch.finfo(total.dtype).tiny), torch.zeros_like(total))


def corrected(eta: Float[Tensor, " D"], n_tokens: int, n_groups: int) -> Float[Tensor, " D"]:
    """Takes off what groups without meaning would explain: `1 − (1 − η²)(N − 1)/(N − G)`, 0 on the mean by chance."""
    if n_tokens <= n_groups:
        raise ValueError(f"there must be more tokens than groups, got {n_tokens} and {n_groups}")
    return 1 - (1 - eta) * (n_tokens - 1) / (n_tokens - n_groups)
