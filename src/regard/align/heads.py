"""Which heads align best."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from regard.align.links import Gold, agree, agree_with_gold, to_source, to_target
from regard.align.words import Read, Reading
from regard.atomic import atomic_file
from regard.checkpoint import ALIGNMENT, model_folder, read_json, write_json
from regard.model import Seq2Seq
from regard.search.scoring import pair_batches, token_costs
from regard.trace.summary import ALL_HEADS, Choice, named_choices

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


@dataclass(frozen=True)
class Kept:
    """The name of some heads, and what they were chosen by: a measure, its value, on how many pairs of which text.

    `written` names the best of those whose rows are taken when a word is written, which is how a trace shows rows.
    """

    heads: str
    by: str
    value: float | None
    n_pairs: int
    on: str
    written: str | None = None


def keep_heads(folder: Path, chosen: Chosen, on: str) -> Path:
    """Writes a choice into a model's folder."""
    path = model_folder(folder) / ALIGNMENT
    written = next((each.heads for each in chosen.rated if each.heads.endswith(":say")), None)
    kept = Kept(chosen.heads, chosen.by, chosen.value(chosen.heads), chosen.n_pairs, on, written)
    with atomic_file(path) as draft:
        write_json(draft, asdict(kept))
    return path


def kept_heads(folder: Path) -> str | None:
    """Return the name of the heads chosen for a model; None where none were chosen."""
    return _kept_name(folder, "heads")


def kept_choice(folder: Path, sizes: tuple[int, int]) -> Choice | None:
    """Return the heads that a trace of a model shows: the best aligning ones by the rows that write a word, if known.

    None where all heads together are the best, or nothing is known. `sizes` are the numbers of layers and heads.
    """
    names = (_kept_name(folder, "written"), _kept_name(folder, "heads"))
    choices = [named_choices(name, sizes)[0] for name in names if name is not None]
    best = next((choice for choice in choices if choice.at == "say"), ALL_HEADS)
    return None if best == ALL_HEADS else best


def _kept_name(folder: Path, field: str) -> str | None:
    path = model_folder(folder) / ALIGNMENT
    name = read_json(path).get(field) if path.exists() else None
    if path.exists() and not isinstance(name, str) and (name is not None or field == "heads"):
        raise ValueError(f"{path}: this must name heads, such as cross:1:3:read, got {name!r}")
    return name


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
