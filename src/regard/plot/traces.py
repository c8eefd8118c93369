"""A trace becomes figures: each is handed what it draws."""

from collections.abc import Callable
from typing import get_args

import numpy as np
import torch
from matplotlib.figure import Figure

from regard.plot.beam_tree import BeamTree, Fate, draw_beam_tree
from regard.plot.entropy_map import HeadEntropies, draw_entropy_map
from regard.plot.head_grid import Heads, draw_head_grid
from regard.plot.looked_at import draw_looked_at
from regard.plot.norms import StreamNorms, draw_norms
from regard.plot.one_head import draw_one_head
from regard.plot.term_maps import draw_term_maps
from regard.trace.choice import ALL_HEADS, Choice
from regard.trace.look import KINDS, Look
from regard.trace.summary import looked_at, relative_entropy
from regard.trace.trace import Trace
from regard.trace.tree import Node, Tree


def words_figure(trace: Trace, choice: Choice = ALL_HEADS) -> Figure:
    """Draws what each output word looked at by the heads that are chosen."""
    seen = looked_at(trace, choice)
    source, output = [word.text for word in seen.source], [word.text for word in seen.output]
    return draw_looked_at(seen.shares.numpy(), source, output, f"{trace.text} → {trace.output}")


def heads_figure(trace: Trace) -> Figure:
    """Draws all heads of all layers."""
    kinds = []
    for kind in KINDS:
        layers = [look.weights() for look in trace.looks if look.kind == kind]
        if layers:
            kinds.append(Heads(kind, torch.stack(layers).numpy(), *sides(trace, kind)))
    return draw_head_grid(kinds)


def entropy_figure(trace: Trace) -> Figure:
    """Draws how spread out each head looks."""
    kinds = []
    for kind in KINDS:
        layers = [look for look in trace.looks if look.kind == kind]
        if layers:
            nats = torch.stack([look.entropy().mean(-1) for look in layers])
            share = torch.stack([relative_entropy(look) for look in layers])
            kinds.append(HeadEntropies(kind, nats.numpy(), share.to(nats.dtype).numpy()))
    return draw_entropy_map(kinds)


def norms_figure(trace: Trace) -> Figure:
    """Draws how long the vectors of the residual stream are."""
    streams = []
    for stack in dict.fromkeys(flow.stack for flow in trace.flows):
        flows = [flow for flow in trace.flows if flow.stack == stack]
        columns = ([flow.before for flow in flows], [flow.update for flow in flows], [flow.after for flow in flows])
        means = (np.array([float(norms.mean()) for norms in column]) for column in columns)
        names = [f"{flow.layer} {flow.sublayer.replace('_', ' ')}" for flow in flows]
        streams.append(StreamNorms(stack, names, *means))
    return draw_norms(streams)


def tree_figure(trace: Trace) -> Figure:
    """Draws the search: what was kept and what ended, and of what was dropped the likeliest at each step."""
    nodes = _worth_drawing(trace.tree, trace.settings.beam)
    places = {node.number: place for place, node in enumerate(nodes)}
    fates = [node.fate if node.fate in get_args(Fate) else "kept" for node in nodes]
    parents = [places.get(node.parent) for node in nodes]
    totals = np.array([node.total for node in nodes])
    pieces = [node.piece for node in nodes]
    return draw_beam_tree(BeamTree(pieces, parents, totals, fates, places[trace.tree.best]), trace.text)


def head_figure(trace: Trace, look: Look, head: int) -> Figure:
    """Draws one head."""
    title = f"{look.kind} layer {look.layer}, head {head}"
    return draw_one_head(look.weights(head).numpy(), *sides(trace, look.kind), title, entropy=True)


def terms_figure(trace: Trace, look: Look, head: int) -> Figure:
    """Draws what one head's scores are made of."""
    terms = look.terms(head)
    score = terms.total.masked_fill(~look.allowed(head), -torch.inf)
    title = f"Scores of {look.kind} layer {look.layer}, head {head}"
    return draw_term_maps(terms.names, terms.terms.numpy(), score.numpy(), *sides(trace, look.kind), title)


def sides(trace: Trace, kind: str) -> tuple[list[str], list[str]]:
    """Gives the pieces that look and those that are looked at; across, a row is named by what it says next."""
    source, read, said = list(trace.source), list(trace.read), list(trace.target)
    return {"encoder": (source, source), "decoder": (read, read), "cross": (said, source)}[kind]


FIGURES: dict[str, Callable[[Trace], Figure]] = {
    "words": words_figure,
    "heads": heads_figure,
    "tree": tree_figure,
    "entropy": entropy_figure,
    "norms": norms_figure,
}


def _worth_drawing(tree: Tree, n_dropped: int) -> list[Node]:
    dropped: dict[int, list[Node]] = {}
    for node in tree.leaves("dropped"):
        dropped.setdefault(node.step, []).append(node)
    kept = {node.number for some in dropped.values() for node in some[:n_dropped]}
    return [node for node in tree.nodes if node.fate != "dropped" or node.number in kept]
