"""What each target word needs: how much less likely it becomes without a source word."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.model import Seq2Seq
from regard.trace.costs import pair_batches, token_costs
from regard.trace.reading import Reading


def needs(model: Seq2Seq, readings: Sequence[Reading]) -> list[Float[Tensor, "_ _"]]:
    """Gives for each pair by how much −log p of each target joint rises when a source joint is left out.

    Li et al. 2019, "On the word alignment from neural machine translation". One pass for each source joint: S passes
    instead of one, but it needs no attention, and so it can judge it.
    """
    costs = [torch.zeros(1 + _count(each.src.owners), _count(each.tgt.owners)) for each in readings]
    variants = [(n, without) for n, each in enumerate(readings) for without in range(-1, _count(each.src.owners))]
    sources = [_without(readings[n], joint) for n, joint in variants]
    targets = [readings[n].tgt.ids for n, _ in variants]
    for places, batch in pair_batches(sources, targets):
        for place, row in zip(places, token_costs(model, batch), strict=True):
            n, joint = variants[place]
            owners = torch.tensor(readings[n].tgt.owners)
            costs[n][joint + 1].index_add_(0, owners, row[: len(owners)].to(costs[n].dtype))
    return [(each[1:] - each[:1]).T for each in costs]


def _without(reading: Reading, joint: int) -> list[int]:
    """Leaves a joint out; no joint has the number −1."""
    return [token for token, owner in zip(reading.src.ids, reading.src.owners, strict=True) if owner != joint]


def _count(owners: Sequence[int]) -> int:
    return max(owners) + 1
