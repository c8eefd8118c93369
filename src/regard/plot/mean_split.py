"""The stream as a sum of means, and the pairs of parts that carry scores, as a figure."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from regard.plot.drawing import Drawing
from regard.plot.figure import COLOURS, in_style
from regard.study.mean_split import PARTS, Shares
from regard.study.split_scores import HeadSplit, MeanSplitStudy

SHOWN = 0.1  # a pair has a row where it carries so much of some head's scores
FILLS = dict(zip(PARTS[1:], (COLOURS[0], COLOURS[2], COLOURS[4], "0.8"), strict=True))


@in_style
def draw_mean_split(study: MeanSplitStudy) -> Figure:
    """Draws the shares along both streams, and below them a map of pairs and heads."""
    heads = [head for layer in study.layers for head in layer.heads]
    names = shown_pairs(heads)
    figure = Drawing(figsize=(11, 3.2 + (0.8 + 0.2 * len(names)) * bool(heads)))
    rows: Any = [[*study.shares], ["pairs"] * 2] if heads else [[*study.shares]]
    axes = figure.subplot_mosaic(rows, height_ratios=[3.2, 0.8 + 0.2 * len(names)][: len(rows)])
    for stack, points in study.shares.items():
        _draw_shares(axes[stack], points, f"{study.model}: variance of the {stack}'s stream")
    if heads:
        _draw_pairs(axes["pairs"], heads, names)
    return figure


def shown_pairs(heads: list[HeadSplit]) -> list[str]:
    """Names the pairs that carry much of some head's scores, the largest on the mean first."""
    if not heads:
        return []
    totals: dict[str, list[float]] = {}
    for head in heads:
        for name, share in head.ranked():
            totals.setdefault(name, []).append(share)
    large = [name for name, found in totals.items() if max(map(abs, found)) >= SHOWN]
    return sorted(large, key=lambda name: -sum(totals[name]))


def _draw_shares(axes: Axes, points: list[Shares], title: str) -> None:
    below = np.zeros(len(points))
    for number, (part, colour) in enumerate(FILLS.items()):
        share = np.array([float(each.variance[number]) for each in points])
        axes.bar(range(len(points)), share, bottom=below, color=colour, label=part)
        below += share
    axes.set_xticks(range(len(points)), [each.point for each in points], rotation=20)
    axes.set(title=title, ylabel="share", ylim=(0, 1.14))
    axes.legend(fontsize="small", ncols=4, loc="upper center")


def _draw_pairs(axes: Axes, heads: list[HeadSplit], names: list[str]) -> None:
    """Draws a column for each head and a row for each pair; blue carries, red works against the whole."""
    shares = np.array([[dict(head.ranked()).get(name, 0.0) for head in heads] for name in names])
    image = axes.imshow(shares, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(names)), names)
    starts = [at for at, head in enumerate(heads) if head.head == 0]
    axes.set_xticks(starts, [f"{heads[at].kind}:{heads[at].layer}" for at in starts], rotation=30, ha="left")
    for start in starts[1:]:
        axes.axvline(start - 0.5, color="0.5", linewidth=0.6)
    axes.set(title="share of each head's scores that a pair of parts carries (query–key)")
    bar = axes.get_figure().colorbar(image, ax=axes, fraction=0.03)  # pyright: ignore[reportOptionalMemberAccess]
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
