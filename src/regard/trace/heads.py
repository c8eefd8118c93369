"""The report on a model's heads: where each looks, and what is lost without it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch import Tensor

from regard.batch import Batch
from regard.config import choose
from regard.decode.translator import Translator
from regard.model import Seq2Seq
from regard.text.tokenizer import Tokenizer
from regard.trace.bar import Bar, no_bar
from regard.trace.costs import pair_batches
from regard.trace.habits import Habits, Sight, habit_sums, habits, sights
from regard.trace.places import find_places, own_copy
from regard.trace.punctuation import punctuation_of
from regard.trace.quality import Quality, judge
from regard.trace.switch import switched_off
from regard.trace.weighing import show_weights

Layer = tuple[str, int]  # the kind of attention, and the number of the layer

HABITS = tuple(field.name for field in fields(Habits))
ORDERS = ("loss", "bleu", *HABITS, "kind", "layer", "head")


@dataclass(frozen=True)
class Head:
    """One head, its habits, and what is lost without it: the rise of the loss, the fall of BLEU where measured."""

    kind: str
    layer: int
    head: int
    habits: Habits
    loss: float
    bleu: float | None

    def __str__(self) -> str:
        return f"{self.kind}:{self.layer}:{self.head}"


@dataclass(frozen=True)
class HeadReport:
    """All heads of a model on some pairs, and how good it is there with all of them."""

    heads: list[Head]
    whole: Quality
    n_pairs: int
    n_tokens: int  # of the target
    n_unread: int  # pairs that were left out, since a side is empty or longer than the model reads

    def ranked(self, by: str = "loss") -> "HeadReport":
        """Sorts heads by a measure from the largest down, what was not measured last; by a place from the first on."""
        choose(dict.fromkeys(ORDERS), by, "order of heads")
        return replace(self, heads=sorted(self.heads, key=lambda head: _rank(head, by)))


def report_heads(
    translator: Translator, pairs: Sequence[tuple[str, str]], bleu: bool = False, bar: Bar = no_bar
) -> HeadReport:
    """Looks at every head on some pairs, and switches each off: one pass for the habits of all, then one for each.

    With `bleu` the sources are also translated greedily, once for each head. The translator's model is not touched.
    """
    read, batches = _batches(translator, pairs)
    model, translated = own_copy(translator.model), read if bleu else []
    whole = judge(model, batches, translator, translated)
    looks = _habits(model, translator.tokenizer, bar(batches, len(batches), "looking at heads"))
    places = [(place, head) for place in find_places(model) for head in range(place.n_heads)]
    heads = []
    for place, head in bar(places, len(places), "switching heads off"):
        with switched_off(place.read_by[head]):
            lost = _lost(whole, judge(model, batches, translator, translated))
        heads.append(Head(place.kind, place.layer, head, looks[place.kind, place.layer][head], *lost))
    n_tokens = sum(batch.tgt.n_tokens for batch in batches)
    return HeadReport(heads, whole, len(read), n_tokens, len(pairs) - len(read))


def _batches(translator: Translator, pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Batch]]:
    """Gives the pairs that the model can read, and their batches."""
    src = translator.tokenizer.encode_batch([pair[0] for pair in pairs], "src")
    tgt = translator.tokenizer.encode_batch([pair[1] for pair in pairs], "tgt")
    lengths = [(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    fit = [n for n, both in enumerate(lengths) if min(both) > 0 and max(both) <= translator.max_len]
    if not fit:
        raise ValueError(f"a report on heads needs pairs that the model can read, got 0 of {len(pairs)}")
    batches = pair_batches([src[n] for n in fit], [tgt[n] for n in fit])
    return [pairs[n] for n in fit], [batch for _, batch in batches]


def _habits(model: Seq2Seq, tokenizer: Tokenizer, batches: Iterable[Batch]) -> dict[Layer, list[Habits]]:
    """Gives the habits of every head of every layer."""
    flags, sums = (punctuation_of(tokenizer, "src"), punctuation_of(tokenizer, "tgt")), {}
    for batch in batches:
        show_weights(model, batch.to(next(model.parameters()).device), partial(_add, sums, sights(batch, flags)))
    return {place: [habits(place[0], each) for each in total.T.tolist()] for place, total in sums.items()}


def _add(sums: dict[Layer, Tensor], seen: dict[str, Sight], kind: str, layer: int, weights: Tensor) -> None:
    here = habit_sums(weights.cpu(), seen[kind])
    sums[kind, layer] = sums[kind, layer] + here if (kind, layer) in sums else here


def _lost(whole: Quality, without: Quality) -> tuple[float, float | None]:
    fall = None if whole.bleu is None or without.bleu is None else whole.bleu - without.bleu
    return without.loss - whole.loss, fall


def _rank(head: Head, by: str) -> tuple[Any, ...]:
    """Gives what heads are compared by; equal ones stay in the order of the model."""
    if by in {"kind", "layer", "head"}:
        return (getattr(head, by),)
    value = getattr(head.habits if by in HABITS else head, by)
    return value is None, -(value or 0.0)
