"""The still pictures that stand in for the view where no view can be run."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from regard.plot.head_grid import Heads, draw_head_grid
from regard.plot.head_lines import draw_head_lines
from regard.plot.traces import heads_figure, sides, words_figure
from regard.trace.look import KINDS
from regard.trace.trace import Trace
from regard.trace.words import group_words

CROWDED = 40  # words of a side beyond which lines and bars take seconds, and are a haze


def run_picture(trace: Trace) -> Figure:
    """Draws what each word looked at; all heads where nobody looked across, or too many words did."""
    crowded = max(len(trace.source), len(trace.target)) > CROWDED
    return words_figure(trace) if trace.cross and not crowded else heads_figure(trace)


def lines_picture(trace: Trace, kind: str, layer: int, heads: Sequence[int], unit: str) -> Figure:
    """Draws lines between words, or between pieces; maps where there are too many of either."""
    weights, rows, columns = _shown(trace.look(kind, layer).weights()[list(heads)], trace, kind, unit)
    if max(len(rows), len(columns)) > CROWDED:
        return maps_picture(trace, unit)
    names, title = [f"head {head}" for head in heads], f"{kind} layer {layer}: who looks at whom"
    return draw_head_lines(weights.numpy(), rows, columns, names, title)


def maps_picture(trace: Trace, unit: str) -> Figure:
    """Draws all heads of all layers."""
    kinds = []
    for kind in KINDS:
        layers = [_shown(look.weights(), trace, kind, unit) for look in trace.looks if look.kind == kind]
        if layers:
            kinds.append(Heads(kind, torch.stack([weights for weights, _, _ in layers]).numpy(), *layers[0][1:]))
    return draw_head_grid(kinds)


def _shown(
    weights: Float[Tensor, "H Q K"], trace: Trace, kind: str, unit: str
) -> tuple[Float[Tensor, "H _ _"], list[str], list[str]]:
    """Gives weights by piece as they are; by word the pieces of a key are added, those of a query averaged."""
    queries, keys = sides(trace, kind)
    if unit == "piece":
        return weights, queries, keys
    rows, columns = group_words(queries), group_words(keys)
    by_key = torch.stack([weights[..., list(word.places)].sum(-1) for word in columns], dim=-1)
    merged = torch.stack([by_key[:, list(word.places)].mean(1) for word in rows], dim=1)
    return merged, [word.text for word in rows], [word.text for word in columns]
