"""Quality against the number of heads that are left, as a figure."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import COLOURS, in_style
from regard.study.pruning import ALLOWED_LOSS, PruneStudy

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
