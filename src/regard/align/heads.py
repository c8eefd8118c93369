"""Which heads align best."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from regard.align.links import Gold, SegmentedPair, TokenizedPair, agree, agree_with_gold, to_source, to_target
from regard.atomic import atomic_file
from regard.checkpoint import ALIGNMENT, model_folder, write_json
from regard.model import Seq2Seq
from regard.search.scoring import pair_batches, token_costs
from regard.shapes import Float
from regard.trace.head_choice import HeadChoice, saved_name

SoftLinks = list[Float[Tensor, "C _ _"]]  # (C, t, s) for each pair: what target groups attend to by each choice

GOLD = "alignment error rate on the gold links"
REVERSE = "agreement with the reverse model"
LEAVE_ONE_OUT = "agreement with the source words that target words cannot do without"
# Each model's own direction: it attends from its target to its source, which is turned for the reverse model.
DIRECTIONS: tuple[Callable[[Tensor], Tensor], ...] = (to_source, to_target)


@dataclass(frozen=True)
class HeadRating:
    """Some heads, and how good they are by a measure."""

    heads: str
    value: float


@dataclass(frozen=True)
class RankedHeads:
    """The heads that are asked, what they were chosen by, on how many pairs, and how good all were, best first."""

    heads: str
    by: str
    n_pairs: int
    rated: list[HeadRating]

    def value(self, heads: str) -> float | None:
        """Return how good some heads were found to be."""
        return next((each.value for each in self.rated if each.heads == heads), None)


def choose_by_gold(
    reads: Sequence[SegmentedPair],
    softs: Sequence[SoftLinks],
    choices: Sequence[list[HeadChoice]],
    gold: Sequence[Gold],
) -> list[RankedHeads]:
    """Choose for each model the heads whose own links, one for each of its target words, have the fewest errors."""
    found = []
    for follow, soft, some in zip(DIRECTIONS, softs, choices, strict=False):
        rates = agree_with_gold(reads, [follow(each) for each in soft], gold)
        found.append(_best(some, rates, GOLD, len(reads), lowest=True))
    return found


def choose_by_reverse(softs: Sequence[SoftLinks], choices: Sequence[list[HeadChoice]]) -> list[RankedHeads]:
    """Choose the heads of a model and of its reverse whose links agree best; each is rated beside the other's best."""
    both = agree(*([follow(each) for each in soft] for follow, soft in zip(DIRECTIONS, softs, strict=True)))
    one, other = divmod(int(both.argmax()), both.shape[1])
    rates = both[:, other], both[one]
    return [_best(some, each, REVERSE, len(softs[0])) for some, each in zip(choices, rates, strict=True)]


def choose_by_leave_one_out(
    soft: SoftLinks, choices: list[HeadChoice], needed: Sequence[Float[Tensor, "_ _"]]
) -> list[RankedHeads]:
    """Choose the heads of one model alone that attend to what each word cannot do without.

    Agreement of rows with columns would not do: it is the same whether a row is what is said or what is read.
    """
    rates = agree([to_source(each) for each in soft], [to_source(each)[None] for each in needed])[:, 0]
    return [_best(choices, rates, LEAVE_ONE_OUT, len(soft))]


def _best(
    choices: Sequence[HeadChoice], rates: Float[Tensor, " C"], by: str, n_pairs: int, lowest: bool = False
) -> RankedHeads:
    order = torch.argsort(rates, descending=not lowest, stable=True).tolist()
    rated = [HeadRating(str(choices[place]), float(rates[place])) for place in order]
    return RankedHeads(rated[0].heads, by, n_pairs, rated)


@dataclass(frozen=True)
class SavedHeads:
    """The name of some heads, and what they were chosen by: a measure, its value, on how many pairs of which text.

    `written` names the best of those whose rows are taken when a word is written, which is how a trace shows rows.
    """

    heads: str
    by: str
    value: float | None
    n_pairs: int
    on: str
    written: str | None = None


def save_heads(folder: Path, chosen: RankedHeads, on: str) -> Path:
    """Write a choice into a model's folder."""
    path = model_folder(folder) / ALIGNMENT
    written = next((each.heads for each in chosen.rated if each.heads.endswith(":say")), None)
    kept = SavedHeads(chosen.heads, chosen.by, chosen.value(chosen.heads), chosen.n_pairs, on, written)
    with atomic_file(path) as draft:
        write_json(draft, asdict(kept))
    return path


def load_heads(folder: Path) -> str | None:
    """Return the name of the heads chosen for a model; None where none were chosen."""
    return saved_name(folder, "heads")


def leave_one_out(model: Seq2Seq, readings: Sequence[TokenizedPair]) -> list[Float[Tensor, "_ _"]]:
    """Return for each pair by how much −log p of each target group rises when a source group is left out.

    Li et al. 2019, "On the word alignment from neural machine translation". One pass for each source group: S passes
    instead of one, but it needs no attention, and so it can judge it.
    """
    costs = [torch.zeros(1 + _count(each.src.groups), _count(each.tgt.groups)) for each in readings]
    variants = [(n, without) for n, each in enumerate(readings) for without in range(-1, _count(each.src.groups))]
    sources = [_without(readings[n], group) for n, group in variants]
    targets = [readings[n].tgt.ids for n, _ in variants]
    for places, batch in pair_batches(sources, targets):
        for place, row in zip(places, token_costs(model, batch), strict=True):
            n, group = variants[place]
            owners = torch.tensor(readings[n].tgt.groups)
            costs[n][group + 1].index_add_(0, owners, row[: len(owners)].to(costs[n].dtype))
    return [(each[1:] - each[:1]).T for each in costs]


def _without(reading: TokenizedPair, group: int) -> list[int]:
    """Leave a group out; no group has the number −1."""
    return [token for token, owner in zip(reading.src.ids, reading.src.groups, strict=True) if owner != group]


def _count(owners: Sequence[int]) -> int:
    return max(owners) + 1
