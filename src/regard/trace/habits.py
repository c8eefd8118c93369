"""Where a head usually looks: means over all queries of a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.batch import EOS, Batch


@dataclass(frozen=True)
class Habits:
    """Means of one head's rows: entropy in nats and as a share of the largest there can be, key − query, and shares.

    The shares are those of the weight that lie on the query's own place, the one before and after it, the first token,
    the end of the sentence and punctuation. A decoder's own tokens have no end among them, and begin with BOS.
    """

    entropy: float
    spread: float
    offset: float
    diagonal: float
    previous: float
    next: float
    first: float
    end: float | None
    punctuation: float


@dataclass(frozen=True, eq=False)
class Sight:
    """Who looks in one kind of attention, at how many keys, and what these are."""

    real: Bool[Tensor, "B Q"]
    n_keys: Int[Tensor, "B Q"]
    end: Bool[Tensor, "B K"]
    punctuation: Bool[Tensor, "B K"]


def sights(batch: Batch, is_punctuation: tuple[Bool[Tensor, " V"], Bool[Tensor, " V2"]]) -> dict[str, Sight]:
    """Tells for each kind of attention who looks at what in a batch; punctuation is given by id, for either side."""
    src, read, said = batch.src, batch.tgt.read, batch.tgt.real
    in_src, in_tgt = is_punctuation[0][src.ids], is_punctuation[1][read]
    real = torch.arange(src.ids.shape[1], device=src.ids.device) < src.lengths[:, None]
    far = src.lengths[:, None]
    before = torch.arange(1, read.shape[1] + 1, device=read.device)
    return {
        "encoder": Sight(real, far.expand_as(real), src.ids == EOS, in_src),
        "decoder": Sight(said, before.expand_as(said), read == EOS, in_tgt),
        "cross": Sight(said, far.expand_as(said), src.ids == EOS, in_src),
    }


def habit_sums(weights: Float[Tensor, "B H Q K"], sight: Sight) -> Float[Tensor, "11 H"]:
    """Adds over all real queries of a batch what means are made of: the habits in their order, and two counts.

    The counts are those of queries, and of queries that had a choice between keys, for the spread.
    """
    weights = weights.double() * sight.real[:, None, :, None]
    Q, K = weights.shape[-2:]
    ahead = torch.arange(K, device=weights.device) - torch.arange(Q, device=weights.device)[:, None]  # (Q, K)
    entropy = torch.special.entr(weights).sum(-1)  # (B, H, Q)
    free = sight.real & (sight.n_keys > 1)
    share = entropy / sight.n_keys.clamp(min=2).double().log()[:, None] * free[:, None]
    by_key = weights.sum(2)  # (B, H, K)
    places = [(weights * (ahead == step)).sum((0, 2, 3)) for step in (0, -1, 1)]
    marks = [(by_key * mark[:, None]).sum((0, 2)) for mark in (sight.end, sight.punctuation)]
    counts = [each.sum().expand(weights.shape[1]).double() for each in (sight.real, free)]
    spread = [entropy.sum((0, 2)), share.sum((0, 2)), (weights * ahead).sum((0, 2, 3))]
    return torch.stack([*spread, *places, by_key[..., 0].sum(0), *marks, *counts])


def habits(kind: str, sums: Sequence[float]) -> Habits:
    """Makes means of one head's sums."""
    *totals, n, n_free = sums
    entropy, spread, *others = totals
    offset, diagonal, previous, after, first, end, punctuation = (each / max(n, 1) for each in others)
    means = entropy / max(n, 1), spread / max(n_free, 1), offset, diagonal, previous, after, first
    return Habits(*means, None if kind == "decoder" else end, punctuation)
