"""Trace -> figures; residual norms; training curves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from regard.plot.beam_tree import BeamTree, Fate, draw_beam_tree
from regard.plot.canvas import NAME, TITLE, check_words
from regard.plot.head_maps import HeadWeights, draw_head_grid, draw_one_head, draw_term_maps
from regard.plot.head_values import HeadEntropies, draw_entropy_map
from regard.plot.style import in_style, new_figure
from regard.plot.words import draw_word_attention
from regard.shapes import Float
from regard.trace.attention_map import KINDS, AttentionMap, as_array, mean_relative_entropy
from regard.trace.head_choice import ALL_HEADS, HeadChoice
from regard.trace.search_tree import SearchTree, TreeNode
from regard.trace.summary import word_attention
from regard.trace.trace import Trace, sides

if TYPE_CHECKING:
    from regard.train.state import Progress

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
    """Draw a panel for each stream, from its first sub-layer to its last, all in one scale."""
    if not streams:
        raise ValueError("norms need one residual stream or more, got 0")
    for each in streams:
        for what, _, _ in LINES:
            check_words("sublayers", each.sublayers, len(getattr(each, what)), what)
    widths = [max(2.4, 0.22 * len(each.sublayers) + 0.6) for each in streams]
    figure = new_figure(figsize=(sum(widths) + 0.6, 4.2))
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
    """Begin at 0, or counts in powers where small updates would lie on the floor."""
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


def words_figure(trace: Trace, choice: HeadChoice = ALL_HEADS) -> Figure:
    """Draw what each output word attended to in the chosen heads."""
    seen = word_attention(trace, choice)
    source, output = [word.text for word in seen.source], [word.text for word in seen.output]
    return draw_word_attention(seen.shares, source, output, f"{trace.text} → {trace.output}")


def heads_figure(trace: Trace) -> Figure:
    """Draw all heads of all layers."""
    kinds = []
    for kind in KINDS:
        layers = [as_array(attention_map.weights()) for attention_map in trace.attention if attention_map.kind == kind]
        if layers:
            kinds.append(HeadWeights(kind, np.stack(layers), *sides(trace, kind)))
    return draw_head_grid(kinds)


def entropy_figure(trace: Trace) -> Figure:
    """Draw how spread out each head's attention is."""
    kinds = []
    for kind in KINDS:
        layers = [attention_map for attention_map in trace.attention if attention_map.kind == kind]
        if layers:
            nats = np.stack([as_array(attention_map.entropy()).mean(-1) for attention_map in layers])
            share = np.stack([mean_relative_entropy(attention_map) for attention_map in layers])
            kinds.append(HeadEntropies(kind, nats, share.astype(nats.dtype)))
    return draw_entropy_map(kinds)


def norms_figure(trace: Trace) -> Figure:
    """Draw how long the vectors of the residual stream are."""
    streams = []
    for stack in dict.fromkeys(flow.stack for flow in trace.residual_norms):
        flows = [flow for flow in trace.residual_norms if flow.stack == stack]
        columns = ([flow.before for flow in flows], [flow.update for flow in flows], [flow.after for flow in flows])
        means = (np.array([float(norms.mean()) for norms in column]) for column in columns)
        names = [f"{flow.layer} {flow.sublayer.replace('_', ' ')}" for flow in flows]
        streams.append(StreamNorms(stack, names, *means))
    return draw_norms(streams)


def tree_figure(trace: Trace) -> Figure:
    """Draw the search: what was kept and what ended, and of what was dropped the likeliest at each step."""
    nodes = _worth_drawing(trace.tree, trace.settings.beam)
    indices = {node.number: index for index, node in enumerate(nodes)}
    fates = [node.fate if node.fate in get_args(Fate) else "kept" for node in nodes]
    parents = [indices.get(node.parent) for node in nodes]
    totals = np.array([node.total for node in nodes])
    tokens = [node.piece for node in nodes]
    return draw_beam_tree(BeamTree(tokens, parents, totals, fates, indices[trace.tree.best]), trace.text)


def head_figure(trace: Trace, attention_map: AttentionMap, head: int) -> Figure:
    """Draw one head."""
    title = f"{attention_map.kind} layer {attention_map.layer}, head {head}"
    return draw_one_head(as_array(attention_map.weights(head)), *sides(trace, attention_map.kind), title, entropy=True)


def terms_figure(trace: Trace, attention_map: AttentionMap, head: int) -> Figure:
    """Draw what one head's scores are made of."""
    terms = attention_map.terms(head)
    score = np.where(as_array(attention_map.allowed(head)), as_array(terms.total), -np.inf)
    title = f"Scores of {attention_map.kind} layer {attention_map.layer}, head {head}"
    return draw_term_maps(terms.names, as_array(terms.terms), score, *sides(trace, attention_map.kind), title)


FIGURES: dict[str, Callable[[Trace], Figure]] = {
    "words": words_figure,
    "heads": heads_figure,
    "tree": tree_figure,
    "entropy": entropy_figure,
    "norms": norms_figure,
}


def _worth_drawing(tree: SearchTree, n_dropped: int) -> list[TreeNode]:
    dropped: dict[int, list[TreeNode]] = {}
    for node in tree.leaves("dropped"):
        dropped.setdefault(node.step, []).append(node)
    kept = {node.number for some in dropped.values() for node in some[:n_dropped]}
    return [node for node in tree.nodes if node.fate != "dropped" or node.number in kept]


SCORES = {"bleu": "BLEU", "chrf": "chrF"}


@in_style
def draw_training(progress: "Progress") -> Figure:
    """Draw the loss of training and validation over the steps, and the scores of validation where there are any."""
    scored = not progress.valid or "bleu" in progress.valid[-1]
    figure = new_figure(figsize=(9 if scored else 4.8, 3.4))
    loss, *rest = figure.subplots(1, 2 if scored else 1, squeeze=False)[0]
    if progress.losses:
        loss.plot(*zip(*progress.losses, strict=True), label="training, dropout on")
    steps = [found["step"] for found in progress.valid]
    loss.plot(steps, [found["loss"] for found in progress.valid], "o-", markersize=3, label="validation")
    loss.set(title="−log p of a target token", xlabel="step")
    loss.legend()
    for axes in rest:
        _draw_scores(axes, progress)
    return figure


def _draw_scores(axes: Axes, progress: "Progress") -> None:
    steps = [found["step"] for found in progress.valid]
    for name, label in SCORES.items():
        axes.plot(steps, [found[name] for found in progress.valid], "o-", markersize=3, label=label)
    axes.set(title="validation, greedy", xlabel="step")
    axes.legend()
