"""How many heads does a model need? Heads are taken out one after another, and quality is measured again each time."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from regard.batch import Batch
from regard.decode.translator import Translator
from regard.model import Seq2Seq
from regard.study.readable import Readable, readable
from regard.study.spread import Spread, spread
from regard.trace.bar import Bar, no_bar
from regard.trace.costs import pair_batches
from regard.trace.heads import report_heads
from regard.trace.places import find_places, own_copy
from regard.trace.quality import Quality, judge
from regard.trace.switch import switched_off

LEAST_PAIRS = 8
MEASURED, REVERSED, RANDOM = "least important first", "most important first", "by chance"
ALLOWED_LOSS = 1.0  # points of BLEU


@dataclass(frozen=True)
class PruneSettings:
    """At how many numbers of heads quality is measured, and how many orders by chance there are."""

    points: int = 11
    random_orders: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Kept:
    """How good the model is with so many heads left."""

    n: int
    loss: Spread
    bleu: Spread


@dataclass(frozen=True)
class Curve:
    """One order of removal, or several by chance, from all heads to none."""

    order: str
    points: list[Kept]

    def enough(self, lost: float = ALLOWED_LOSS) -> int:
        """Gives the fewest heads with which, and with all larger numbers that were measured, BLEU loses no more."""
        whole, least = self.points[0].bleu.mean, self.points[0].n
        for kept in self.points:
            if kept.bleu.mean < whole - lost:
                break
            least = kept.n
        return least


@dataclass(frozen=True)
class PruneStudy:
    """The heads by importance, the most important first, and the curves; each was measured on a half of the text."""

    model: str
    importance: list[tuple[str, float]]  # by how much the loss rises without the head alone
    whole: Quality
    curves: list[Curve]
    n_ranked_on: int
    n_pairs: int  # on which curves were measured
    n_unread: int
    settings: PruneSettings


class Pruner:
    """A private copy of a model whose heads can be taken out, and the text on which it is judged."""

    def __init__(self, translator: Translator, text: Readable):
        self.translator = translator
        self.text = text
        self.model: Seq2Seq = own_copy(translator.model)
        self.batches: list[Batch] = [batch for _, batch in pair_batches(text.src, text.tgt)]
        self.columns: dict[str, list[Float[Tensor, "_ E"]]] = {
            f"{place.kind}:{place.layer}:{head}": place.read_by[head]
            for place in find_places(self.model)
            for head in range(place.n_heads)
        }

    @contextmanager
    def without(self, heads: Sequence[str]) -> Iterator[None]:
        """Takes heads out for a while."""
        with switched_off([column for head in heads for column in self.columns[head]]):
            yield

    def quality(self, removed: Sequence[str]) -> Quality:
        """Measures loss and greedy BLEU without some heads."""
        with self.without(removed):
            return judge(self.model, self.batches, self.translator, self.text.pairs)


def run_pruning(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: PruneSettings,
    bar: Bar = no_bar,
) -> PruneStudy:
    """Ranks heads on every second pair, and measures curves of removal on the others."""
    text = readable(translator, pairs, LEAST_PAIRS)
    ranked_on, judged_on = half(text, 0), half(text, 1)
    report = report_heads(translator, ranked_on.pairs, bar=bar)
    importance = [(str(head), head.loss) for head in report.ranked("loss").heads]
    pruner = Pruner(translator, judged_on)
    curves = draw_curves(pruner, [head for head, _ in importance], settings, bar)
    whole = Quality(curves[0].points[0].loss.mean, curves[0].points[0].bleu.mean)
    sizes = len(ranked_on.pairs), len(judged_on.pairs), text.n_unread
    return PruneStudy(name, importance, whole, curves, *sizes, settings)


def half(text: Readable, start: int) -> Readable:
    """Gives every second pair, so that no head is judged on the text by which it was chosen."""
    return replace(text, pairs=text.pairs[start::2], src=text.src[start::2], tgt=text.tgt[start::2])


def draw_curves(pruner: Pruner, best_first: Sequence[str], settings: PruneSettings, bar: Bar = no_bar) -> list[Curve]:
    """Removes heads in all orders; what is the same in all of them, all heads and none, is measured once."""
    n, chance = len(best_first), random.Random(settings.seed)
    orders = {(MEASURED, 0): list(best_first[::-1]), (REVERSED, 0): list(best_first)}
    orders |= {(RANDOM, i): chance.sample(list(best_first), n) for i in range(settings.random_orders)}
    sizes = kept_sizes(n, settings.points)
    wanted = {frozenset(order[: n - size]): order[: n - size] for order in orders.values() for size in sizes}
    found = {key: pruner.quality(some) for key, some in bar(list(wanted.items()), len(wanted), "pruning heads")}
    names = dict.fromkeys(name for name, _ in orders)
    return [
        Curve(
            name, [_kept(size, [found[frozenset(order[: n - size])] for order in _of(orders, name)]) for size in sizes]
        )
        for name in names
    ]


def kept_sizes(n_heads: int, points: int) -> list[int]:
    """Gives numbers of heads from all to none, evenly apart."""
    if points < 2:
        raise ValueError(f"a curve needs 2 points or more, all heads and none, got {points}")
    points = min(points, n_heads + 1)
    return [round(n_heads * (points - 1 - i) / (points - 1)) for i in range(points)]


def _of(orders: dict[tuple[str, int], list[str]], name: str) -> list[list[str]]:
    return [order for (found, _), order in orders.items() if found == name]


def _kept(n: int, qualities: list[Quality]) -> Kept:
    bleus = [quality.bleu for quality in qualities if quality.bleu is not None]
    return Kept(n, spread([quality.loss for quality in qualities]), spread(bleus))
