"""How large the residual stream is, sub-layer by sub-layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from regard.plot.drawing import Drawing
from regard.plot.figure import in_style
from regard.plot.sheet import NAME, TITLE
from regard.plot.words import check_words

WIDE = 20.0  # from this ratio of the largest to the smallest norm on, the scale is logarithmic
LINES = (("inputs", "s", "input"), ("updates", "^", "update: what the sub-layer adds"), ("outputs", "o", "output"))


@dataclass(frozen=True, eq=False)
class StreamNorms:
    """Mean lengths of the vectors that enter each sub-layer, that it adds, and that leave it."""

    name: str
    sublayers: Sequence[str]
    inputs: Float[np.ndarray, " M"]
    updates: Float[np.ndarray, " M"]
    outputs: Float[np.ndarray, " M"]


@in_style
def draw_norms(
    streams: Sequence[StreamNorms], title: str = "How long the vectors of the residual stream are"
) -> Figure:
    """Draws a panel for each stream, from its first sub-layer to its last, all in one scale."""
    if not streams:
        raise ValueError("norms need one residual stream or more, got 0")
    for each in streams:
        for what, _, _ in LINES:
            check_words("sublayers", each.sublayers, len(getattr(each, what)), what)
    widths = [max(2.4, 0.22 * len(each.sublayers) + 0.6) for each in streams]
    figure = Drawing(figsize=(sum(widths) + 0.6, 4.2))
    panels = figure.subplots(1, len(streams), sharey=True, squeeze=False, width_ratios=widths)[0]
    for axes, each in zip(panels, streams, strict=True):
        _draw_stream(axes, each)
    _set_scale(panels[0], np.concatenate([getattr(each, what) for each in streams for what, _, _ in LINES]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=TITLE)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def _draw_stream(axes: Axes, stream: StreamNorms) -> None:
    for what, marker, label in LINES:
        axes.plot(getattr(stream, what), marker=marker, markersize=4, linewidth=1, label=label)
    axes.set(title=stream.name, xlabel="sub-layer")
    axes.set_xticks(range(len(stream.sublayers)), stream.sublayers, rotation=90, fontsize=NAME)


def _set_scale(axes: Axes, norms: Float[np.ndarray, " M"]) -> None:
    """Begins at 0, or counts in powers where small updates would lie on the floor."""
    smallest = norms[norms > 0].min(initial=np.inf)
    if norms.max() > WIDE * smallest:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("mean norm (log scale)")
    else:
        axes.set_ylim(bottom=0)
        axes.set_ylabel("mean norm")
