"""`regard study heads`: how many heads does a model need?"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from rich.table import Table
from torch import Tensor

from regard.batch import Batch
from regard.model import Seq2Seq
from regard.pipeline.translator import Translator
from regard.plot.style import COLOURS, in_style, new_figure
from regard.search.scoring import pair_batches
from regard.shapes import Float
from regard.study.repeats import MeanStd, mean_std
from regard.study.sequences import EncodedPairs, encode_pairs
from regard.terminal import QUIET
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_PAIRS = 8
QUICK_PAIRS = 60
LEAST_FIRST, MOST_FIRST, RANDOM = "least important first", "most important first", "random order"
ALLOWED_LOSS = 1.0  # points of BLEU


@dataclass(frozen=True)
class PruningPoint:
    """Quality with `n` heads left."""

    n: int
    loss: MeanStd
    bleu: MeanStd


@dataclass(frozen=True)
class PruningSettings:
    """The number of points of a curve, and of random orders."""

    points: int = 11
    random_orders: int = 3
    seed: int = 0


SETTINGS = PruningSettings()
QUICK = PruningSettings(points=5, random_orders=1)


@dataclass(frozen=True)
class PruningCurve:
    """One order of removal, or the mean of several random ones, from all heads to none."""

    order: str
    points: list[PruningPoint]

    def enough(self, lost: float = ALLOWED_LOSS) -> int:
        """Return the fewest heads with which, as with all larger numbers, BLEU is at most `lost` points lower."""
        whole, least = self.points[0].bleu.mean, self.points[0].n
        for point in self.points:
            if point.bleu.mean < whole - lost:
                break
            least = point.n
        return least


@dataclass(frozen=True)
class HeadsStudy:
    """Heads by importance, the most important first, and the curves, each measured on one half of the text."""

    model: str
    importance: list[tuple[str, float]]  # rise of the loss without this head alone
    whole: Quality
    curves: list[PruningCurve]
    n_ranked_on: int
    n_pairs: int  # on which curves were measured
    n_unread: int
    settings: PruningSettings


class Pruner:
    """A copy of a model whose heads can be switched off, and the text on which it is measured."""

    def __init__(self, translator: Translator, text: EncodedPairs):
        self.translator = translator
        self.text = text
        self.model: Seq2Seq = plain_copy(translator.model)
        self.batches: list[Batch] = [batch for _, batch in pair_batches(text.src, text.tgt)]
        self.columns: dict[str, list[Float[Tensor, "_ E"]]] = {
            f"{each.kind}:{each.layer}:{head}": each.read_by[head]
            for each in find_heads(self.model)
            for head in range(each.n_heads)
        }

    @contextmanager
    def without(self, heads: Sequence[str]) -> Iterator[None]:
        """Switch heads off within the block."""
        with zero_head([column for head in heads for column in self.columns[head]]):
            yield

    def quality(self, removed: Sequence[str]) -> Quality:
        """Measure loss and greedy BLEU without some heads."""
        with self.without(removed):
            return measure_quality(self.model, self.batches, self.translator, self.text.pairs)


def run(
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    settings: PruningSettings,
    bar: ProgressBar = no_progress,
) -> HeadsStudy:
    """Rank heads on every second pair, and measure curves of removal on the others."""
    text = encode_pairs(translator, pairs, LEAST_PAIRS)
    ranked_on, measured_on = half(text, 0), half(text, 1)
    report = report_heads(translator, ranked_on.pairs, bar=bar)
    importance = [(str(head), head.loss) for head in report.ranked("loss").heads]
    pruner = Pruner(translator, measured_on)
    curves = measure_curves(pruner, [head for head, _ in importance], settings, bar)
    whole = Quality(curves[0].points[0].loss.mean, curves[0].points[0].bleu.mean)
    sizes = len(ranked_on.pairs), len(measured_on.pairs), text.n_unread
    return HeadsStudy(name, importance, whole, curves, *sizes, settings)


def half(text: EncodedPairs, start: int) -> EncodedPairs:
    """Return every second pair, so that no head is judged on the text by which it was ranked."""
    return replace(text, pairs=text.pairs[start::2], src=text.src[start::2], tgt=text.tgt[start::2])


def measure_curves(
    pruner: Pruner, best_first: Sequence[str], settings: PruningSettings, bar: ProgressBar = no_progress
) -> list[PruningCurve]:
    """Remove heads in all orders; sets that several orders share, such as all heads and none, are measured once."""
    n, generator = len(best_first), random.Random(settings.seed)
    orders = {(LEAST_FIRST, 0): list(best_first[::-1]), (MOST_FIRST, 0): list(best_first)}
    orders |= {(RANDOM, i): generator.sample(list(best_first), n) for i in range(settings.random_orders)}
    sizes = head_counts(n, settings.points)
    wanted = {frozenset(order[: n - size]): order[: n - size] for order in orders.values() for size in sizes}
    qualities = {key: pruner.quality(some) for key, some in bar(list(wanted.items()), len(wanted), "pruning heads")}
    names = dict.fromkeys(name for name, _ in orders)
    return [
        PruningCurve(
            name,
            [_point(size, [qualities[frozenset(order[: n - size])] for order in _of(orders, name)]) for size in sizes],
        )
        for name in names
    ]


def head_counts(n_heads: int, points: int) -> list[int]:
    """Return numbers of heads from all to none, evenly spaced."""
    if points < 2:
        raise ValueError(f"a curve needs 2 points or more, all heads and none, got {points}")
    points = min(points, n_heads + 1)
    return [round(n_heads * (points - 1 - i) / (points - 1)) for i in range(points)]


def _of(orders: dict[tuple[str, int], list[str]], name: str) -> list[list[str]]:
    return [order for (each, _), order in orders.items() if each == name]


def _point(n: int, qualities: list[Quality]) -> PruningPoint:
    bleus = [quality.bleu for quality in qualities if quality.bleu is not None]
    return PruningPoint(n, mean_std([quality.loss for quality in qualities]), mean_std(bleus))


KINDS = {"encoder": COLOURS[0], "decoder": COLOURS[2], "cross": COLOURS[1]}


@in_style
def figure(study: HeadsStudy) -> "Figure":
    """Draw BLEU and loss while heads are removed, and the importance of each head alone."""
    drawing = new_figure(figsize=(11, 3.6))
    bleu, loss, importance = drawing.subplots(1, 3)
    _draw_curves(bleu, study, "bleu")
    bleu.axhline(study.curves[0].points[0].bleu.mean - ALLOWED_LOSS, color="0.6", linestyle=":", linewidth=1)
    bleu.set(title=f"BLEU, {study.n_pairs} pairs; dotted: one point lost")
    bleu.legend(fontsize="small")
    _draw_curves(loss, study, "loss")
    loss.set(title="−log p of a target token")
    _draw_importance(importance, study)
    return drawing


def _draw_curves(axes: "Axes", study: HeadsStudy, what: str) -> None:
    for curve in study.curves:
        left = [point.n for point in curve.points]
        values = [getattr(point, what) for point in curve.points]
        means, stds = np.array([each.mean for each in values]), np.array([each.std for each in values])
        (line,) = axes.plot(left, means, "o-", markersize=3, label=curve.order)
        axes.fill_between(left, means - stds, means + stds, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.invert_xaxis()
    axes.set(xlabel="heads left")


def _draw_importance(axes: "Axes", study: HeadsStudy) -> None:
    colours = [KINDS[name.split(":")[0]] for name, _ in study.importance]
    axes.bar(range(len(colours)), [rise for _, rise in study.importance], color=colours, width=1.0)
    for kind, colour in KINDS.items():
        axes.bar([0], [0], color=colour, label=kind)
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.legend(fontsize="small")
    axes.set(title="rise of the loss without one head", xlabel="heads, by importance")


CAPTION = (
    "BLEU of greedy translations and loss per target token, in nats, with this many heads left, measured again at each "
    "point; ± is the standard deviation over the random orders."
)
MOST_HEADS = 10  # that are listed from either end


def tables(study: HeadsStudy) -> dict[str, Table]:
    """Return the curves, and the heads that matter most and least."""
    return {"quality": quality_table(study), "importance": importance_table(study)}


def quality_table(study: HeadsStudy) -> Table:
    """List all curves, number by number."""
    first, whole = study.curves[0], study.whole.bleu
    enough = (
        f" {first.order.capitalize()}, {first.enough()} heads keep BLEU within {ALLOWED_LOSS:g} point of {whole:.1f}."
    )
    table = Table(title=f"Heads of {study.model} removed, {study.n_pairs} pairs", caption=CAPTION + enough, **QUIET)
    for column in ("heads", *(f"{what},\n{curve.order}" for what in ("BLEU", "loss") for curve in study.curves)):
        table.add_column(column, justify="right")
    for number, point in enumerate(first.points):
        bleus = [_cell(curve, number, "bleu", ".1f") for curve in study.curves]
        losses = [_cell(curve, number, "loss", ".2f") for curve in study.curves]
        table.add_row(str(point.n), *bleus, *losses)
    return table


def importance_table(study: HeadsStudy) -> Table:
    """List the most and the least important heads."""
    title = f"Rise of the loss without one head, {study.n_ranked_on} other pairs"
    table = Table(title=title, **QUIET)
    for column in ("most\nimportant", "loss", "least\nimportant", "loss"):
        table.add_column(column, justify="right" if column.startswith("loss") else "left")
    n = min(MOST_HEADS, len(study.importance))
    for one, other in zip(study.importance[:n], study.importance[::-1][:n], strict=True):
        table.add_row(one[0], _signed(one[1]), other[0], _signed(other[1]))
    return table


def _cell(curve: PruningCurve, number: int, what: str, form: str) -> str:
    value = getattr(curve.points[number], what)
    return format(value.mean, form) + (f" ± {value.std:{form}}" if value.n > 1 else "")


def _signed(number: float) -> str:
    return f"{number:+.4f}".replace("-", "−")
