"""Trace -> JSON and HTML."""

import re
import zlib
from base64 import b64encode
from collections.abc import Iterable, Sequence
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from regard.atomic import atomic_file
from regard.serve import PAGE, UNBUILT, InternalError
from regard.serve import schema_trace as view
from regard.serve.schema_api import to_json
from regard.serve.schema_trace import HeadJson, Saved, View
from regard.shapes import Float, UInt8
from regard.trace.attention_map import KINDS, AttentionMap, as_array, entropies, mean_relative_entropy
from regard.trace.head_choice import HeadChoice
from regard.trace.search_tree import SearchTree
from regard.trace.summary import BYTE, MARK, SPECIAL, group_words
from regard.trace.trace import Trace, sides

DIGITS = 7  # a float32 has no more


def round_number(value: float) -> float | None:
    """Round to seven digits; None for NaN and infinities, which JSON lacks."""
    return float(f"{value:.{DIGITS}g}") if isfinite(value) else None


def round_numbers(values: Float[Any, "*shape"]) -> Any:
    """Return nested lists of numbers rounded to seven digits; all must be finite."""
    exact = as_array(values).astype(np.float64)
    with np.errstate(divide="ignore"):
        decimals = DIGITS - 1 - np.floor(np.log10(np.abs(exact)))
    scale = 10.0 ** np.clip(decimals, -300, 300)
    return np.where(exact == 0.0, 0.0, np.round(exact * scale) / scale).tolist()


MAX_BYTE = 255
RAW = -15  # zlib's window bits for a stream without header, which browsers call deflate-raw
LEVEL = 1  # level 6 compresses 300 tokens by a tenth more, in four times the time


def quantize(weights: Float[np.ndarray, "*shape"]) -> UInt8[np.ndarray, "*shape"]:
    """Return `round(255 √w)`: small weights, which are most, keep a higher resolution than large ones."""
    return np.round(MAX_BYTE * np.sqrt(np.clip(weights, 0.0, 1.0))).astype(np.uint8)


def dequantize(quantized: UInt8[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Return the weights, with an error of at most √w / 255 + 1 / 255²."""
    return np.square(quantized / MAX_BYTE)


def pack(parts: Iterable[UInt8[np.ndarray, "..."]]) -> str:
    """Compress the bytes of all parts as one stream, in base64."""
    stream = zlib.compressobj(LEVEL, zlib.DEFLATED, RAW)
    chunks = [stream.compress(np.ascontiguousarray(part).data) for part in parts]
    return b64encode(b"".join([*chunks, stream.flush()])).decode("ascii")


BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")


def join_pieces(pieces: Sequence[str]) -> str:
    """Join tokens: marks become spaces, bytes become characters, special tokens such as EOS are left out."""
    text = "".join(piece for piece in pieces if BYTE.fullmatch(piece) or not SPECIAL.fullmatch(piece))
    return BYTES.sub(_characters, text).replace(MARK, " ").strip()


def _characters(match: re.Match[str]) -> str:
    return bytes(int(byte, 16) for byte in BYTE.findall(match[0])).decode("utf-8", "replace")


MAX_LEAVES = 50


def make_view(
    trace: Trace,
    model: str = "",
    id: str | None = None,
    part: int = 0,
    n_parts: int = 1,
    aligning: HeadChoice | None = None,
) -> View:
    """Return everything but the exact numbers of heads; weights are materialised layer by layer."""
    settings, checks = trace.settings, trace.check()
    return View(
        id=id,
        model=model,
        text=trace.text,
        output=trace.output,
        src_lang=trace.src_lang,
        tgt_lang=trace.tgt_lang,
        search=view.Search(settings.method, settings.beam if settings.method == "beam" else 1, settings.length_penalty),
        source=_side(trace.source),
        read=_side(trace.read),
        target=_side(trace.target),
        kinds=_kinds(trace),
        steps=_steps(trace),
        tree=_tree(trace.tree),
        leaf=trace.end_node,
        part=part,
        n_parts=n_parts,
        checks=view.ChecksJson(round_number(checks.weights), checks.look, round_number(checks.log_prob)),
        flows=[
            view.FlowJson(
                flow.stack,
                flow.layer,
                flow.sublayer,
                *(round_numbers(x) for x in (flow.before, flow.update, flow.after)),
            )
            for flow in trace.residual_norms
        ],
        aligning=None if aligning is None else view.Aligning(aligning.layer, aligning.head, aligning.at),
    )


def _kinds(trace: Trace) -> list[view.Kind]:
    maps = {kind: [each for each in trace.attention if each.kind == kind] for kind in KINDS}
    return [_kind(kind, layers) for kind, layers in maps.items() if layers]


def make_head(trace: Trace, kind: str, layer: int, head: int) -> HeadJson:
    """Return the exact weights, scores and terms of one head."""
    attention_map = trace.attention_map(kind, layer)
    weights = as_array(attention_map.weights(head))
    rows, columns = sides(trace, kind)
    try:
        split, scores = attention_map.terms(head), attention_map.scores(head)
    except ValueError:  # traces of external models may have weights only
        split, scores = None, None
    return HeadJson(
        kind=kind,
        layer=layer,
        head=head,
        queries=list(rows),
        keys=list(columns),
        weights=round_numbers(weights),
        entropy=round_numbers(entropies(weights)),
        allowed=attention_map.allowed(head).tolist(),
        scores=None if scores is None else round_numbers(scores),
        terms=[]
        if split is None
        else [view.Term(name, round_numbers(values)) for name, values in zip(split.names, split.terms, strict=True)],
        error=None if split is None else round_number(split.error),
    )


def _side(pieces: Sequence[str]) -> view.SideJson:
    return view.SideJson(list(pieces), [view.WordJson(word.text, list(word.indices)) for word in group_words(pieces)])


def _kind(kind: str, attention_maps: list[AttentionMap]) -> view.Kind:
    n_heads, (_, queries, keys) = (
        max(attention_map.n_heads for attention_map in attention_maps),
        attention_maps[0].sizes,
    )
    parts, entropy = [], []
    for attention_map in attention_maps:
        weights = as_array(attention_map.weights())
        missing = n_heads - attention_map.n_heads
        entropy.append([*round_numbers(mean_relative_entropy(attention_map, weights)), *[None] * missing])
        parts += [quantize(weights), np.zeros((missing, queries, keys), np.uint8)]
    return view.Kind(kind, len(attention_maps), n_heads, queries, keys, pack(parts), entropy)


def _steps(trace: Trace) -> list[view.StepJson]:
    return [
        view.StepJson(
            step.piece,
            round_number(step.log_prob),
            round_number(step.replayed),
            [view.OptionJson(each.piece, each.log_prob) for each in step.alternatives if isfinite(each.log_prob)],
        )
        for step in trace.steps
    ]


def _tree(tree: SearchTree) -> view.TreeJson:
    nodes = [
        view.NodeJson(
            each.number,
            each.parent,
            each.step,
            each.piece,
            round_number(each.log_prob),
            round_number(each.total),
            each.fate,
        )
        for each in tree.nodes
    ]
    best_path = [node.number for node in tree.path(tree.best)] if nodes else []
    return view.TreeJson(nodes, tree.best, best_path, _leaves(tree))


def _leaves(tree: SearchTree) -> list[view.Leaf]:
    """Return the final hypotheses, finished ones first, in the order of their scores."""
    leaves = []
    for node in tree.leaves("ended", "open"):
        hypothesis = tree.hypothesis(node.number)
        text = join_pieces([each.piece for each in tree.path(node.number)])
        leaves.append(
            view.Leaf(
                node.number,
                text,
                round_number(hypothesis.score),
                round_number(hypothesis.log_prob),
                hypothesis.finished,
            )
        )
    return sorted(leaves, key=lambda leaf: (not leaf.finished, -(leaf.score or 0.0)))[:MAX_LEAVES]


PLACEHOLDER = "<!--regard-view-->"
# Exact numbers of heads that a file holds besides the packed weights: about two megabytes.
MAX_NUMBERS = 200_000


def save_html(
    trace: Trace, path: str | PathLike[str], model: str = "", *others: Trace, aligning: HeadChoice | None = None
) -> None:
    """Save the page with a trace in it, and others to compare it with, as one HTML file."""
    try:
        page = render_html(trace, model, others, aligning)
    except InternalError as error:
        raise ValueError(f"{path}: {error}") from error
    with atomic_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def render_html(trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: HeadChoice | None = None) -> str:
    """Return the page with a trace in it."""
    built = PAGE / "view.html"
    if not built.is_file():
        raise InternalError(UNBUILT)
    before, _, after = built.read_text(encoding="utf-8").partition(PLACEHOLDER)
    data = json_for_html(make_saved(trace, model, others, aligning))
    return f'{before}<script type="application/json" id="regard-view">{data}</script>{after}'


def make_saved(
    trace: Trace, model: str = "", others: Sequence[Trace] = (), aligning: HeadChoice | None = None
) -> Saved:
    """Return the data of a page: the exact numbers of all heads if they are few, otherwise packed weights only."""
    numbers = sum(
        attention_map.n_heads * attention_map.sizes[1] * attention_map.sizes[2] * 8 for attention_map in trace.attention
    )
    attention_maps = trace.attention if numbers <= MAX_NUMBERS else ()
    heads = [
        make_head(trace, attention_map.kind, attention_map.layer, head)
        for attention_map in attention_maps
        for head in range(attention_map.n_heads)
    ]
    first, *rest = (trace, *others)
    return Saved([make_view(first, model, aligning=aligning), *(make_view(each, model) for each in rest)], heads)


def json_for_html(saved: Saved) -> str:
    """Serialise JSON that is safe inside a script element."""
    return to_json(saved).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
