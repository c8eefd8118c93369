"""A trace becomes what the page is told about it."""

from collections.abc import Sequence
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from regard.serve import view
from regard.serve.numbers import digits, number
from regard.serve.packed import pack, rounded
from regard.serve.spelling import spelled
from regard.serve.view import Head, View
from regard.trace.choice import Choice
from regard.trace.flow import Flow
from regard.trace.look import KINDS, Look
from regard.trace.trace import Trace
from regard.trace.tree import Tree
from regard.trace.words import group_words

MOST_LEAVES = 50


def view_of(
    trace: Trace,
    model: str = "",
    name: str | None = None,
    part: int = 0,
    n_parts: int = 1,
    aligning: Choice | None = None,
) -> View:
    """Gives everything but the numbers of single heads; weights are materialised layer by layer."""
    chosen, checks = trace.settings, trace.check()
    return View(
        id=name,
        model=model,
        text=trace.text,
        output=trace.output,
        src_lang=trace.src_lang,
        tgt_lang=trace.tgt_lang,
        search=view.Search(chosen.method, chosen.beam if chosen.method == "beam" else 1, chosen.length_penalty),
        source=_side(trace.source),
        read=_side(trace.read),
        target=_side(trace.target),
        kinds=[_kind(kind, looks) for kind in KINDS if (looks := [each for each in trace.looks if each.kind == kind])],
        steps=_steps(trace),
        tree=_tree(trace.tree),
        leaf=trace.leaf,
        part=part,
        n_parts=n_parts,
        checks=view.Checks(number(checks.weights), checks.look, number(checks.log_prob)),
        flows=[
            view.Flow(
                flow.stack, flow.layer, flow.sublayer, *(digits(x) for x in (flow.before, flow.update, flow.after))
            )
            for flow in trace.flows
        ],
        aligning=None if aligning is None else view.Aligning(aligning.layer, aligning.head, aligning.at),
    )


def head_of(trace: Trace, kind: str, layer: int, head: int) -> Head:
    """Gives one head's weights, scores and terms as they are."""
    look = trace.look(kind, layer)
    weights = look.weights(head)
    rows, columns = sides(trace, kind)
    try:
        split, scores = look.terms(head), look.scores(head)
    except ValueError:  # of other people's models weights alone may be known
        split, scores = None, None
    return Head(
        kind=kind,
        layer=layer,
        head=head,
        queries=list(rows),
        keys=list(columns),
        weights=digits(weights),
        entropy=digits(torch.special.entr(weights).sum(-1)),
        allowed=look.allowed(head).tolist(),
        scores=None if scores is None else digits(scores),
        terms=[]
        if split is None
        else [view.Term(name, digits(values)) for name, values in zip(split.names, split.terms, strict=True)],
        error=None if split is None else number(split.error),
    )


def sides(trace: Trace, kind: str) -> tuple[Sequence[str], Sequence[str]]:
    """Gives the pieces that look, and those that are looked at."""
    return {
        "encoder": (trace.source, trace.source),
        "decoder": (trace.read, trace.read),
        "cross": (trace.read, trace.source),
    }[kind]


def _side(pieces: Sequence[str]) -> view.Side:
    return view.Side(list(pieces), [view.Word(word.text, list(word.places)) for word in group_words(pieces)])


def _kind(kind: str, looks: list[Look]) -> view.Kind:
    n_heads, (_, queries, keys) = max(look.n_heads for look in looks), looks[0].sizes
    parts, entropy = [], []
    for look in looks:
        weights = look.weights()
        missing = n_heads - look.n_heads
        entropy.append([*digits(_spread(look, weights)), *[None] * missing])
        parts += [rounded(weights), torch.zeros(missing, queries, keys, dtype=torch.uint8)]
    return view.Kind(kind, len(looks), n_heads, queries, keys, pack(parts), entropy)


def _spread(look: Look, weights: Float[Tensor, "H Q K"]) -> Float[Tensor, " H"]:
    """Gives the mean entropy of each head as a share of the largest there can be, over queries with a choice."""
    entropies, shares = torch.special.entr(weights).sum(-1), []
    for head in range(look.n_heads):
        counts = look.allowed(head).sum(-1)
        free = counts > 1
        shares.append((entropies[head][free] / counts[free].log()).mean() if free.any() else entropies.new_zeros(()))
    return torch.stack(shares)


def _flow(flow: Flow) -> view.Flow:
    norms = (digits(x) for x in (flow.before, flow.update, flow.after))
    return view.Flow(flow.stack, flow.layer, flow.sublayer, *norms)


def _steps(trace: Trace) -> list[view.Step]:
    return [
        view.Step(
            step.piece,
            number(step.log_prob),
            number(step.replayed),
            [view.Option(each.piece, each.log_prob) for each in step.alternatives if isfinite(each.log_prob)],
        )
        for step in trace.steps
    ]


def _tree(tree: Tree) -> view.Tree:
    nodes = [
        view.Node(each.number, each.parent, each.step, each.piece, number(each.gain), number(each.total), each.fate)
        for each in tree.nodes
    ]
    best_path = [node.number for node in tree.path(tree.best)] if nodes else []
    return view.Tree(nodes, tree.best, best_path, _leaves(tree))


def _leaves(tree: Tree) -> list[view.Leaf]:
    """Lists what was ended or left open, finished ones first, as the search ranks them."""
    found = []
    for node in tree.leaves("ended", "open"):
        said = tree.hypothesis(node.number)
        text = spelled([each.piece for each in tree.path(node.number)])
        found.append(view.Leaf(node.number, text, number(said.score), number(said.log_prob), said.finished))
    return sorted(found, key=lambda leaf: (not leaf.finished, -(leaf.score or 0.0)))[:MOST_LEAVES]
