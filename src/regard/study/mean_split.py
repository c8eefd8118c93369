"""`regard study mean-split`: the residual stream as a sum of means, carried into the scores."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor, nn

from regard.attention import Attention
from regard.model.multihead import MultiHeadAttention, split_heads
from regard.pipeline.translator import Translator
from regard.plot.style import COLOURS, in_style, new_figure
from regard.shapes import Bool, Float, Int
from regard.study.sequences import encode_pairs
from regard.study.stream_parts import PARTS, VarianceShares, measure, scheme_of, split_means
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.attention import BILINEAR
from regard.trace.decompose import relative_error
from regard.trace.first_layer import AFFINE
from regard.trace.head_ablation import ProgressBar, no_progress, plain_copy
from regard.trace.residual import Stream, record_streams

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class ProjectionInput:
    """What is projected to queries or keys: the stream, its parts, the norm before the layer if any, and positions."""

    x: Float[Tensor, "N D"]
    parts: Float[Tensor, "P N D"]
    norm: nn.Module | None
    positions: Int[Tensor, " N"]


@dataclass(frozen=True, eq=False)
class Projection:
    """Queries or keys of all heads: as the layer itself makes them, and those of each part, which add up to them."""

    whole: Float[Tensor, "H N E"]
    parts: Float[Tensor, "P H N E"]

    def at(self, rows: Int[Tensor, " T"]) -> "Projection":
        """Return those of some tokens."""
        return Projection(self.whole[:, rows], self.parts[:, :, rows])


def is_splittable(attention: Attention, norms: list[nn.Module | None]) -> bool:
    """Return whether scores are exact sums over pairs: linear in queries and keys, behind norms known to be affine."""
    return type(attention) in BILINEAR and all(norm is None or type(norm) in AFFINE for norm in norms)


@torch.no_grad()
def project(side: ProjectionInput, heads: MultiHeadAttention, linear: nn.Linear) -> Projection:
    """Take a stream and its parts through norm, projection and rotation.

    A norm is affine once its own mean and deviation are known, which are those of the whole stream; its bias and the
    projection's go with the first part, which is what all tokens have in common.
    """
    whole, parts, positions = side.x[None], side.parts, side.positions[None]
    if side.norm is not None:
        through, common = AFFINE[type(side.norm)](side.norm, whole.double())
        whole, parts = side.norm(whole), through(parts)
        parts = torch.cat([parts[:1] + common, parts[1:]])
    projected = parts @ linear.weight.double().T
    if linear.bias is not None:
        projected = torch.cat([projected[:1] + linear.bias.double(), projected[1:]])
    rotated: Any = [
        heads.position.rotate(split_heads(each, heads.n_heads), positions) for each in (linear(whole), projected)
    ]
    return Projection(rotated[0][0], rotated[1])


@torch.no_grad()
def pair_terms(attention: Attention, q: Projection, k: Projection) -> Float[Tensor, "P P2 H Q K"]:
    """Return the score of each part of the queries with each part of the keys; they sum to the score without bias."""
    n = len(k.parts)
    return torch.stack([attention.scores(part.expand(n, *part.shape), k.parts) for part in q.parts])


LEAST_PAIRS = 16
QUICK_PAIRS = 60


@dataclass(frozen=True, eq=False)
class HeadSplit:
    """One head: the share of its scores that each pair of parts carries, rows those of the query, columns of the key.

    A softmax feels only how scores differ from key to key, so each row of scores is taken without its mean over the
    keys that may be seen. The share of a term is `Σ term · score / Σ score²`: shares, the bias's included, add up to 1,
    and one below 0 is a pair that works against the whole.
    """

    kind: str
    layer: int
    head: int
    pairs: Float[Tensor, "5 5"]
    bias: float  # what the position encoding adds to the scores

    def __str__(self) -> str:
        return f"{self.kind}:{self.layer}:{self.head}"

    def ranked(self) -> list[tuple[str, float]]:
        """Return pairs from the largest share down, such as `word–position`."""
        pairs = [
            (f"{one}–{other}", float(self.pairs[i, j])) for i, one in enumerate(PARTS) for j, other in enumerate(PARTS)
        ]
        pairs = [*pairs, ("bias", self.bias)] if self.bias else pairs
        return sorted(pairs, key=lambda each: -each[1])


@dataclass(frozen=True, eq=False)
class LayerSplit:
    """The heads of one attention; `error` is the deviation of the sum of terms, relative to the largest score."""

    kind: str
    layer: int
    heads: list[HeadSplit]
    error: float


@dataclass(frozen=True, eq=False)
class MeanSplitStudy:
    """The sizes of the parts along both streams, and what carries the scores of every attention that can be split."""

    model: str
    scheme: str
    n_pairs: int
    n_unread: int
    n_tokens: dict[str, int]
    seed: int
    shares: dict[str, list[VarianceShares]]
    layers: list[LayerSplit]  # empty where scores are not sums over pairs, as in additive attention


@dataclass(frozen=True, eq=False)
class AttentionInputs:
    """One attention, what it projects to queries and to keys, and the sentences that the rows of either belong to."""

    kind: str
    layer: int
    heads: MultiHeadAttention
    q: ProjectionInput
    k: ProjectionInput
    q_sentences: Int[Tensor, " N"]
    k_sentences: Int[Tensor, " M"]


@one_thread()
def run(
    name: str, translator: Translator, pairs: Sequence[tuple[str, str]], seed: int = 0, bar: ProgressBar = no_progress
) -> MeanSplitStudy:
    """Split both streams at each layer, and carry the split into all scores."""
    text = encode_pairs(translator, pairs, LEAST_PAIRS)
    streams = record_streams(translator.model, text.src, text.tgt, bar)
    plain: Any = plain_copy(translator.model).cpu()
    shares = {stack: measure_stream(stream, seed) for stack, stream in streams.items()}
    n_layers = len(plain.encoder.layers) + 2 * len(plain.decoder.layers)
    layers = [
        split_scores(layer)
        for layer in bar(attention_inputs(plain, streams), n_layers, "splitting scores")
        if is_splittable(layer.heads.attention, [layer.q.norm, layer.k.norm])
    ]
    n_tokens = {stack: len(stream.tokens.ids) for stack, stream in streams.items()}
    return MeanSplitStudy(name, scheme_of(plain), len(text.src), text.n_unread, n_tokens, seed, shares, layers)


def measure_stream(stream: Stream, seed: int) -> list[VarianceShares]:
    """Measure the parts at the embedding, and after each layer."""
    tokens = stream.tokens
    return [measure(point, split_means(x, tokens), tokens, seed) for point, x in stream.points().items()]


def attention_inputs(plain: Any, streams: dict[str, Stream]) -> Iterator[AttentionInputs]:
    """Yield a Transformer's attentions one after another, with the streams before them split into parts."""
    for kind, layers in (("encoder", plain.encoder.layers), ("decoder", plain.decoder.layers)):
        stream = streams[kind]
        for number, layer in enumerate(layers):
            norm = layer.after_attention.norm if layer.after_attention.norm_first else None
            side = _side(stream, stream.before[number, "attention"], norm, stream.tokens.positions)
            sentences = stream.tokens.sentences
            yield AttentionInputs(kind, number, layer.attention, side, side, sentences, sentences)
    source, target = streams["encoder"], streams["decoder"]
    zeros = torch.zeros_like(source.tokens.positions), torch.zeros_like(target.tokens.positions)
    read = _side(source, source.last, plain.encoder.last_norm, zeros[0])
    for number, layer in enumerate(plain.decoder.layers):
        residual = layer.after_cross_attention
        norm = residual.norm if residual.norm_first else None
        asked = _side(target, target.before[number, "cross_attention"], norm, zeros[1])
        sentences = target.tokens.sentences, source.tokens.sentences
        yield AttentionInputs("cross", number, layer.cross_attention, asked, read, *sentences)


def _side(stream: Stream, x: Tensor, norm: Any, positions: Tensor) -> ProjectionInput:
    return ProjectionInput(x, split_means(x, stream.tokens), norm, positions)


@torch.no_grad()
def split_scores(job: AttentionInputs) -> LayerSplit:
    """Split the scores of one attention in every sentence, and add up what each pair of parts carries."""
    q, k = project(job.q, job.heads, job.heads.w_q), project(job.k, job.heads, job.heads.w_k)
    H = job.heads.n_heads
    pairs, biases, squares, error = torch.zeros(5, 5, H).double(), torch.zeros(H).double(), torch.zeros(H).double(), 0.0
    for sentence in job.q_sentences.unique().tolist():
        rows, columns = ((each == sentence).nonzero()[:, 0] for each in (job.q_sentences, job.k_sentences))
        terms, bias, off = _split(job, q.at(rows), k.at(columns), (rows, columns))
        allowed = _allowed(job, rows, columns)
        total = _centred(terms.sum((0, 1)) + bias, allowed)  # (H, Q, K)
        pairs += torch.einsum("prhqk,hqk->prh", terms, total)
        biases += (bias * total).sum((1, 2))
        squares += total.square().sum((1, 2))
        error = max(error, off)
    whole = squares.clamp(min=torch.finfo(torch.float64).tiny)
    heads = [HeadSplit(job.kind, job.layer, h, pairs[..., h] / whole[h], float(biases[h] / whole[h])) for h in range(H)]
    return LayerSplit(job.kind, job.layer, heads, error)


def _split(
    job: AttentionInputs, q: Projection, k: Projection, rows: tuple[Tensor, Tensor]
) -> tuple[Float[Tensor, "5 5 H Q K"], Float[Tensor, "H Q K"], float]:
    """Return the terms of one sentence, the bias, and how far the terms are off the layer's own scores."""
    attention, position = job.heads.attention, job.heads.position
    terms = pair_terms(attention, q, k)
    scores = attention.scores(q.whole[None], k.whole[None])
    positions = job.q.positions[rows[0]][None], job.k.positions[rows[1]][None]
    bias = position.bias(q.whole[None], k.whole[None], *positions)
    off = relative_error(terms.sum((0, 1)) - scores[0].double(), scores)
    added = torch.zeros_like(scores[0]) if bias is None else bias[0].expand_as(scores[0])
    return terms, added.double(), off


def _allowed(job: AttentionInputs, rows: Tensor, columns: Tensor) -> Bool[Tensor, "Q K"]:
    """Return which keys are visible: in a decoder those up to the query, elsewhere all."""
    if job.kind != "decoder":
        return torch.ones(len(rows), len(columns), dtype=torch.bool)
    return job.k.positions[columns] <= job.q.positions[rows][:, None]


def _centred(scores: Float[Tensor, "H Q K"], allowed: Bool[Tensor, "Q K"]) -> Float[Tensor, "H Q K"]:
    """Subtract from each row its mean over the visible keys; the others are 0."""
    means = (scores * allowed).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
    return (scores - means) * allowed


SHOWN = 0.1  # a pair has a row where it carries so much of some head's scores
FILLS = dict(zip(PARTS[1:], (COLOURS[0], COLOURS[2], COLOURS[4], "0.8"), strict=True))


@in_style
def figure(study: MeanSplitStudy) -> "Figure":
    """Draw the shares along both streams, and below them a map of pairs and heads."""
    heads = [head for layer in study.layers for head in layer.heads]
    names = shown_pairs(heads)
    drawing = new_figure(figsize=(11, 3.2 + (0.8 + 0.2 * len(names)) * bool(heads)))
    rows: Any = [[*study.shares], ["pairs"] * 2] if heads else [[*study.shares]]
    axes = drawing.subplot_mosaic(rows, height_ratios=[3.2, 0.8 + 0.2 * len(names)][: len(rows)])
    for stack, points in study.shares.items():
        _draw_shares(axes[stack], points, f"{study.model}: variance of the {stack}'s stream")
    if heads:
        _draw_pairs(axes["pairs"], heads, names)
    return drawing


def shown_pairs(heads: list[HeadSplit]) -> list[str]:
    """Return the pairs that carry much of some head's scores, the largest on average first."""
    if not heads:
        return []
    totals: dict[str, list[float]] = {}
    for head in heads:
        for name, portion in head.ranked():
            totals.setdefault(name, []).append(portion)
    large = [name for name, shares in totals.items() if max(map(abs, shares)) >= SHOWN]
    return sorted(large, key=lambda name: -sum(totals[name]))


def _draw_shares(axes: "Axes", points: list[VarianceShares], title: str) -> None:
    below = np.zeros(len(points))
    for number, (part, colour) in enumerate(FILLS.items()):
        share = np.array([float(each.variance[number]) for each in points])
        axes.bar(range(len(points)), share, bottom=below, color=colour, label=part)
        below += share
    axes.set_xticks(range(len(points)), [each.point for each in points], rotation=20)
    axes.set(title=title, ylabel="share", ylim=(0, 1.14))
    axes.legend(fontsize="small", ncols=4, loc="upper center")


def _draw_pairs(axes: "Axes", heads: list[HeadSplit], names: list[str]) -> None:
    """Draw a column for each head and a row for each pair; blue carries, red counteracts."""
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


CAPTION = (
    "Shares of the variance around the mean; in brackets the same with shuffled labels. after words: position's share "
    "if the means of words are subtracted first; context: mean of the sentence; word: mean of the token; rest: what no "
    "mean explains; mean: length of the global mean relative to a vector's."
)
SCORE_CAPTION = (
    "query–key: parts of the stream that meet in the score, with the share of the score's differences between keys "
    "that the pair carries, mean over the heads; error: deviation of the sum of terms, relative to the largest score."
)
TOP = 3  # pairs of each layer that are listed


def tables(study: MeanSplitStudy) -> dict[str, Table]:
    """Return the parts' shares of the variance and, where scores can be split, what carries them."""
    scores = {"pairs": pairs_table(study), "heads": heads_table(study)} if study.layers else {}
    return {"variance": variance_table(study), **scores}


def variance_table(study: MeanSplitStudy) -> Table:
    """List the parts' shares along both streams."""
    table = Table(
        title=f"The stream of {study.model} as a sum of means, {study.n_pairs} pairs", caption=CAPTION, **QUIET
    )
    for number, column in enumerate(("stack", "where", "position", "after\nwords", "context", "word", "rest", "mean")):
        table.add_column(column, justify="left" if number < 2 else "right")
    for stack, points in study.shares.items():
        for each in points:
            shares = zip(each.variance[:3].tolist(), each.by_chance.tolist(), strict=True)
            cells = [f"{share:.1%} ({chance:.1%})" for share, chance in shares]
            length = float(each.sizes[0] / each.sizes.square().sum().sqrt())
            ends = f"{float(each.variance[3]):.1%}", f"{length:.0%}"
            table.add_row(stack, each.point, cells[0], f"{each.after_words:.1%}", *cells[1:], *ends)
    return table


def pairs_table(study: MeanSplitStudy) -> Table:
    """List for each attention the pairs of parts that carry most of its scores."""
    table = Table(title="Which pairs of parts carry the scores", caption=SCORE_CAPTION, **QUIET)
    for number, column in enumerate(("attention", "first", "second", "third", "error")):
        table.add_column(column, justify="right" if number == 4 else "left")
    for layer in study.layers:
        pairs = [f"{name} {share:.0%}" for name, share in top_pairs(layer)]
        table.add_row(f"{layer.kind}:{layer.layer}", *pairs, f"{layer.error:.0e}")
    return table


def heads_table(study: MeanSplitStudy) -> Table:
    """List for each head the two pairs that carry most."""
    table = Table(title="The two strongest pairs of each head", **QUIET)
    for number, column in enumerate(("head", "first", "share", "second", "share")):
        table.add_column(column, justify="right" if number in {2, 4} else "left")
    for layer in study.layers:
        for head in layer.heads:
            (one, first), (other, second) = head.ranked()[:2]
            table.add_row(str(head), one, f"{first:.0%}", other, f"{second:.0%}")
    return table


def top_pairs(layer: LayerSplit, n: int = TOP) -> list[tuple[str, float]]:
    """Return the pairs with the largest mean share over a layer's heads."""
    totals: dict[str, float] = {}
    for head in layer.heads:
        for name, portion in head.ranked():
            totals[name] = totals.get(name, 0.0) + portion / len(layer.heads)
    return sorted(totals.items(), key=lambda each: -each[1])[:n]
