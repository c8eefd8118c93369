"""A report on heads becomes a figure."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from regard.plot.entropy_map import HeadEntropies
from regard.plot.importance_map import HeadEffects, draw_importance_map
from regard.trace.heads import Head, HeadReport


def report_figure(report: HeadReport) -> Figure:
    """Draws what is lost without each head, and beside it how spread out it looks."""
    kinds = dict.fromkeys(head.kind for head in report.heads)
    title = f"What each head does on {report.n_pairs:,} pairs"
    return draw_importance_map(
        [_effects(kind, [head for head in report.heads if head.kind == kind]) for kind in kinds], title
    )


def _effects(kind: str, heads: list[Head]) -> HeadEffects:
    """Sets heads of one kind in rows of one layer."""
    rows = [
        sorted((each for each in heads if each.layer == layer), key=lambda each: each.head) for layer in _layers(heads)
    ]

    def table(value: Callable[[Head], float | None]) -> Float[np.ndarray, "L H"]:
        return np.array([[value(head) for head in row] for row in rows], dtype=np.float64)

    bleu = None if heads[0].bleu is None else table(lambda head: head.bleu)
    entropies = HeadEntropies(kind, table(lambda head: head.habits.entropy), table(lambda head: head.habits.spread))
    return HeadEffects(kind, table(lambda head: head.loss), bleu, entropies)


def _layers(heads: list[Head]) -> list[int]:
    return sorted({head.layer for head in heads})
