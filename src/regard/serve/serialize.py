"""Trace -> JSON and HTML."""

import json
import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import fields
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from starlette.responses import Response
from torch import Tensor

from regard.atomic import atomic_file
from regard.serve import PAGE, UNBUILT
from regard.serve import schema_trace as view
from regard.serve.requests import BrokenError
from regard.serve.schema_trace import Head, Saved, View
from regard.trace.attention import KINDS, Look, mean_relative_entropy
from regard.trace.search_tree import Tree
from regard.trace.summary import BYTE, MARK, SPECIAL, Choice, group_words
from regard.trace.trace import Trace, sides

DIGITS = 7  # a float32 has no more


def number(value: float) -> float | None:
    """Gives a number to seven digits, or nothing where there is none."""
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None


def digits(values: Float[Tensor, "*shape"]) -> Any:
    """Gives nested lists of numbers to seven digits; all must be finite."""
    exact = values.detach().double().cpu().numpy()
    with np.errstate(divide="ignore"):
        places = DIGITS - 1 - np.floor(np.log10(np.abs(exact)))
    scale = 10.0 ** np.clip(places, -300, 300)
    return np.where(exact == 0.0, 0.0, np.round(exact * scale) / scale).tolist()


TOP = 255
RAW = -15  # zlib's sign for a stream without header, which browsers call deflate-raw
# Level 6 makes 300 tokens a tenth smaller than 1 in four times the time.
LEVEL = 1


def rounded(weights: Float[Tensor, "*shape"]) -> UInt8[Tensor, "*shape"]:
    """Gives `round(255 √w)`: small weights, which are most, keep more of their digits than large ones."""
    return weights.clamp(0.0, 1.0).sqrt().mul(TOP).round().to(torch.uint8)


def restored(rounded: UInt8[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Gives the weights back, off by √w / 255 at most and a little."""
    return (rounded.double() / TOP).square()


def pack(parts: Iterable[UInt8[Tensor, "..."]]) -> str:
    """Joins bytes to one deflated stream in base64, part by part."""
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW)
    made = [stream.compress(part.contiguous().numpy().data) for part in parts]
    return b64encode(b"".join([*made, stream.flush()])).decode("ascii")


BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")


def spelled(pieces: Sequence[str]) -> str:
    """Joins pieces: marks become spaces, bytes characters, and signs such as EOS nothing."""
    kept = "".join(piece for piece in pieces if BYTE.fullmatch(piece) or not SPECIAL.fullmatch(piece))
    return BYTES.sub(_characters, kept).replace(MARK, " ").strip()


def _characters(match: re.Match[str]) -> str:
    return bytes(int(byte, 16) for byte in BYTE.findall(match[0])).decode("utf-8", "replace")


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


def _side(pieces: Sequence[str]) -> view.Side:
    return view.Side(list(pieces), [view.Word(word.text, list(word.places)) for word in group_words(pieces)])


def _kind(kind: str, looks: list[Look]) -> view.Kind:
    n_heads, (_, queries, keys) = max(look.n_heads for look in looks), looks[0].sizes
    parts, entropy = [], []
    for look in looks:
        weights = look.weights()
        missing = n_heads - look.n_heads
        entropy.append([*digits(mean_relative_entropy(look, weights)), *[None] * missing])
        parts += [rounded(weights), torch.zeros(missing, queries, keys, dtype=torch.uint8)]
    return view.Kind(kind, len(looks), n_heads, queries, keys, pack(parts), entropy)


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


def to_json(value: Any) -> str:
    """Writes a dataclass, or a list of them; numbers that JSON lacks are our mistake."""
    return json.dumps(value, default=_shallow, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _shallow(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def answer(value: Any) -> Response:
    """Makes an answer in JSON."""
    return Response(to_json(value), media_type="application/json")


PLACE = "<!--regard-view-->"
# Numbers of heads that a file takes besides the packed weights: about two megabytes.
MOST_NUMBERS = 200_000


def save_html(
    trace: Trace, path: str | PathLike[str], model: str = "", *others: Trace, aligning: Choice | None = None
) -> None:
    """Writes the page with a trace inside it, and others to compare it with."""
    try:
        page = page_of(trace, model, others, aligning)
    except BrokenError as error:
        raise ValueError(f"{path}: {error}") from error
    with atomic_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def page_of(trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: Choice | None = None) -> str:
    """Gives the page with a trace inside it."""
    built = PAGE / "view.html"
    if not built.is_file():
        raise BrokenError(UNBUILT)
    before, _, after = built.read_text(encoding="utf-8").partition(PLACE)
    data = inlined(saved_of(trace, model, others, aligning))
    return f'{before}<script type="application/json" id="regard-view">{data}</script>{after}'


def saved_of(trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: Choice | None = None) -> Saved:
    """Gives what lies inside a page: the numbers of all heads where they are few, and of more the weights alone."""
    numbers = sum(look.n_heads * look.sizes[1] * look.sizes[2] * 8 for look in trace.looks)
    looks = trace.looks if numbers <= MOST_NUMBERS else ()
    heads = [head_of(trace, look.kind, look.layer, head) for look in looks for head in range(look.n_heads)]
    first, *rest = (trace, *others)
    return Saved([view_of(first, model, aligning=aligning), *(view_of(each, model) for each in rest)], heads)


def inlined(saved: Saved) -> str:
    """Writes JSON that can stand inside HTML: no sign in it opens or closes anything."""
    return to_json(saved).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
