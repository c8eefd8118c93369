"""Which heads align best, by measurement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.score.alignment import Gold
from regard.trace.agreement import agree, agree_with_gold, to_source, to_target
from regard.trace.choice import Choice
from regard.trace.reading import Read

Soft = list[Float[Tensor, "C _ _"]]  # (C, t, s) for each pair: what target joints look at by each choice

GOLD = "alignment error rate on the gold links"
REVERSE = "agreement with the reverse model"
NEED = "agreement with the source words that target words cannot do without"
# Each model's own direction: it looks from its target to its source, which is turned for the reverse model.
OWN: tuple[Callable[[Tensor], Tensor], ...] = (to_source, to_target)


@dataclass(frozen=True)
class Rated:
    """Some heads, and how good they are by a measure."""

    heads: str
    value: float


@dataclass(frozen=True)
class Chosen:
    """The heads that are asked, what they were chosen by, on how many pairs, and how good all were, best first."""

    heads: str
    by: str
    n_pairs: int
    rated: list[Rated]

    def value(self, heads: str) -> float | None:
        """Gives how good some heads were found to be."""
        return next((each.value for each in self.rated if each.heads == heads), None)


def choose_by_gold(
    reads: Sequence[Read], softs: Sequence[Soft], choices: Sequence[list[Choice]], gold: Sequence[Gold]
) -> list[Chosen]:
    """Chooses for each model the heads whose own links, one for each of its target words, have the fewest errors."""
    found = []
    for follow, soft, some in zip(OWN, softs, choices, strict=False):
        rates = agree_with_gold(reads, [follow(each) for each in soft], gold)
        found.append(_best(some, rates, GOLD, len(reads), lowest=True))
    return found


def choose_by_reverse(softs: Sequence[Soft], choices: Sequence[list[Choice]]) -> list[Chosen]:
    """Chooses the heads of a model and of its reverse whose links agree best; each is rated beside the other's best."""
    both = agree(*([follow(each) for each in soft] for follow, soft in zip(OWN, softs, strict=True)))
    one, other = divmod(int(both.argmax()), both.shape[1])
    rates = both[:, other], both[one]
    return [_best(some, each, REVERSE, len(softs[0])) for some, each in zip(choices, rates, strict=True)]


def choose_by_need(soft: Soft, choices: list[Choice], needed: Sequence[Float[Tensor, "_ _"]]) -> list[Chosen]:
    """Chooses the heads of one model alone that look at what each word needs.

    Agreement of rows with columns would not do: it is the same whether a row is what is said or what is read.
    """
    rates = agree([to_source(each) for each in soft], [to_source(each)[None] for each in needed])[:, 0]
    return [_best(choices, rates, NEED, len(soft))]


def _best(choices: Sequence[Choice], rates: Float[Tensor, " C"], by: str, n_pairs: int, lowest: bool = False) -> Chosen:
    order = torch.argsort(rates, descending=not lowest, stable=True).tolist()
    rated = [Rated(str(choices[place]), float(rates[place])) for place in order]
    return Chosen(rated[0].heads, by, n_pairs, rated)
