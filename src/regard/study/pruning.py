"""`study heads`."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from torch import Tensor

from regard.batch import Batch
from regard.model import Seq2Seq
from regard.pipeline.translator import Translator
from regard.plot.style import COLOURS, Drawing, in_style
from regard.plot.terminal import QUIET
from regard.search.scoring import pair_batches
from regard.study.inputs import Readable, readable
from regard.study.stats import Spread, spread
from regard.trace.head_ablation import (
    ProgressBar,
    Quality,
    find_heads,
    measure_quality,
    no_progress,
    plain_copy,
    zero_head,
)
from regard.trace.head_report import report_heads

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
        self.model: Seq2Seq = plain_copy(translator.model)
        self.batches: list[Batch] = [batch for _, batch in pair_batches(text.src, text.tgt)]
        self.columns: dict[str, list[Float[Tensor, "_ E"]]] = {
            f"{place.kind}:{place.layer}:{head}": place.read_by[head]
            for place in find_heads(self.model)
            for head in range(place.n_heads)
        }

    @contextmanager
    def without(self, heads: Sequence[str]) -> Iterator[None]:
        """Takes heads out for a while."""
        with zero_head([column for head in heads for column in self.columns[head]]):
            yield

    def quality(self, removed: Sequence[str]) -> Quality:
        """Measures loss and greedy BLEU without some heads."""
        with self.without(removed):
            return measure_quality(self.model, self.batches, self.translator, self.text.pairs)


def run_pruning(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: PruneSettings,
    bar: ProgressBar = no_progress,
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


def draw_curves(
    pruner: Pruner, best_first: Sequence[str], settings: PruneSettings, bar: ProgressBar = no_progress
) -> list[Curve]:
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


KINDS = {"encoder": COLOURS[0], "decoder": COLOURS[2], "cross": COLOURS[1]}


@in_style
def draw_pruning(study: PruneStudy) -> Figure:
    """Draws BLEU and loss while heads go, and how much each head matters alone."""
    figure = Drawing(figsize=(11, 3.6))
    bleu, loss, importance = figure.subplots(1, 3)
    _draw_curves(bleu, study, "bleu")
    bleu.axhline(study.curves[0].points[0].bleu.mean - ALLOWED_LOSS, color="0.6", linestyle=":", linewidth=1)
    bleu.set(title=f"BLEU, {study.n_pairs} pairs; dotted: one point lost")
    bleu.legend(fontsize="small")
    _draw_curves(loss, study, "loss")
    loss.set(title="−log p of a target token")
    _draw_importance(importance, study)
    return figure


def _draw_curves(axes: Axes, study: PruneStudy, what: str) -> None:
    for curve in study.curves:
        kept = [point.n for point in curve.points]
        found = [getattr(point, what) for point in curve.points]
        means, spreads = np.array([each.mean for each in found]), np.array([each.spread for each in found])
        (line,) = axes.plot(kept, means, "o-", markersize=3, label=f"removed {curve.order}")
        axes.fill_between(kept, means - spreads, means + spreads, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.invert_xaxis()
    axes.set(xlabel="heads left")


def _draw_importance(axes: Axes, study: PruneStudy) -> None:
    colours = [KINDS[name.split(":")[0]] for name, _ in study.importance]
    axes.bar(range(len(colours)), [rise for _, rise in study.importance], color=colours, width=1.0)
    for kind, colour in KINDS.items():
        axes.bar([0], [0], color=colour, label=kind)
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.legend(fontsize="small")
    axes.set(title="rise of the loss without one head", xlabel="heads, by importance")


CAPTION = (
    "BLEU of greedy translations and loss of a target token, in nats, with so many heads left, measured again at each "
    "point; ± is the standard deviation over the orders by chance."
)
MOST_HEADS = 10  # that are listed from either end


def pruning_table(study: PruneStudy) -> Table:
    """Lists all curves, number by number."""
    title = f"Heads of {study.model} taken out, {study.n_pairs} pairs"
    table = Table(title=title, caption=CAPTION, **QUIET)
    for column in ("heads", *(f"{what},\n{curve.order}" for what in ("BLEU", "loss") for curve in study.curves)):
        table.add_column(column, justify="right")
    for number, kept in enumerate(study.curves[0].points):
        bleus = [_cell(curve, number, "bleu", ".1f") for curve in study.curves]
        losses = [_cell(curve, number, "loss", ".2f") for curve in study.curves]
        table.add_row(str(kept.n), *bleus, *losses)
    return table


def importance_table(study: PruneStudy) -> Table:
    """Lists the heads that matter most, and those that matter least."""
    title = f"Rise of the loss without one head, {study.n_ranked_on} other pairs"
    table = Table(title=title, **QUIET)
    for column in ("most", "loss ", "least", "loss"):
        table.add_column(column, justify="right" if column.startswith("loss") else "left")
    n = min(MOST_HEADS, len(study.importance))
    for one, other in zip(study.importance[:n], study.importance[::-1][:n], strict=True):
        table.add_row(one[0], _signed(one[1]), other[0], _signed(other[1]))
    return table


def _cell(curve: Curve, number: int, what: str, form: str) -> str:
    found = getattr(curve.points[number], what)
    return format(found.mean, form) + (f" ± {found.spread:{form}}" if found.n > 1 else "")


def _signed(number: float) -> str:
    return f"{number:+.4f}".replace("-", "−")
