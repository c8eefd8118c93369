"""Which pairs of parts of the stream carry the attention scores of each head (S7.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decode.translator import Translator
from regard.model.multihead import MultiHeadAttention
from regard.study.clock import one_thread
from regard.study.embedded import scheme_of
from regard.study.mean_split import PARTS, Shares, measure, split_means
from regard.study.readable import readable
from regard.trace.bar import Bar, no_bar
from regard.trace.carried import Projected, Side, pair_terms, project, splits
from regard.trace.places import own_copy
from regard.trace.stream import Stream, record_streams
from regard.trace.terms import share

LEAST_PAIRS = 16


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
    bias: float  # what the position scheme adds to the scores

    def __str__(self) -> str:
        return f"{self.kind}:{self.layer}:{self.head}"

    def ranked(self) -> list[tuple[str, float]]:
        """Lists pairs from the largest share down, such as `word–position`."""
        found = [
            (f"{one}–{other}", float(self.pairs[i, j])) for i, one in enumerate(PARTS) for j, other in enumerate(PARTS)
        ]
        found = [*found, ("bias", self.bias)] if self.bias else found
        return sorted(found, key=lambda each: -each[1])


@dataclass(frozen=True, eq=False)
class LayerSplit:
    """The heads of one attention; `error` is how far sums of terms are off, as a share of the largest score."""

    kind: str
    layer: int
    heads: list[HeadSplit]
    error: float


@dataclass(frozen=True, eq=False)
class MeanSplitStudy:
    """The parts' sizes along both streams, and what they do in every attention whose scores can be split."""

    model: str
    scheme: str
    n_pairs: int
    n_unread: int
    n_tokens: dict[str, int]
    seed: int
    shares: dict[str, list[Shares]]
    layers: list[LayerSplit]  # none where scores are no sums over pairs, as those of additive attention


@dataclass(frozen=True, eq=False)
class Job:
    """One attention, what it projects to queries and to keys, and the sentences that the rows of either belong to."""

    kind: str
    layer: int
    heads: MultiHeadAttention
    q: Side
    k: Side
    q_sentences: Int[Tensor, " N"]
    k_sentences: Int[Tensor, " M"]


@one_thread()
def run_mean_split(
    name: str, translator: Translator, pairs: Sequence[tuple[str, str]], seed: int = 0, bar: Bar = no_bar
) -> MeanSplitStudy:
    """Splits both streams at each layer, and carries the split into all scores."""
    text = readable(translator, pairs, LEAST_PAIRS)
    streams = record_streams(translator.model, text.src, text.tgt, bar)
    plain: Any = own_copy(translator.model).cpu()
    shares = {stack: measured(stream, seed) for stack, stream in streams.items()}
    n_jobs = len(plain.encoder.layers) + 2 * len(plain.decoder.layers)
    layers = [
        carry(job)
        for job in bar(jobs(plain, streams), n_jobs, "splitting scores")
        if splits(job.heads.attention, [job.q.norm, job.k.norm])
    ]
    n_tokens = {stack: len(stream.tokens.ids) for stack, stream in streams.items()}
    return MeanSplitStudy(name, scheme_of(plain), len(text.src), text.n_unread, n_tokens, seed, shares, layers)


def measured(stream: Stream, seed: int) -> list[Shares]:
    """Measures the parts where the stream begins, and after each layer."""
    tokens = stream.tokens
    return [measure(point, split_means(x, tokens), tokens, seed) for point, x in stream.points().items()]


def jobs(plain: Any, streams: dict[str, Stream]) -> Iterator[Job]:
    """Gives a Transformer's attentions one after another, with the streams before them split into parts."""
    for kind, layers in (("encoder", plain.encoder.layers), ("decoder", plain.decoder.layers)):
        stream = streams[kind]
        for number, layer in enumerate(layers):
            norm = layer.after_attention.norm if layer.after_attention.norm_first else None
            side = _side(stream, stream.before[number, "attention"], norm, stream.tokens.positions)
            sentences = stream.tokens.sentences
            yield Job(kind, number, layer.attention, side, side, sentences, sentences)
    source, target = streams["encoder"], streams["decoder"]
    no_places = torch.zeros_like(source.tokens.positions), torch.zeros_like(target.tokens.positions)
    read = _side(source, source.last, plain.encoder.last_norm, no_places[0])
    for number, layer in enumerate(plain.decoder.layers):
        residual = layer.after_cross_attention
        norm = residual.norm if residual.norm_first else None
        asked = _side(target, target.before[number, "cross_attention"], norm, no_places[1])
        sentences = target.tokens.sentences, source.tokens.sentences
        yield Job("cross", number, layer.cross_attention, asked, read, *sentences)


def _side(stream: Stream, x: Tensor, norm: Any, positions: Tensor) -> Side:
    return Side(x, split_means(x, stream.tokens), norm, positions)


@torch.no_grad()
def carry(job: Job) -> LayerSplit:
    """Splits the scores of one attention in every sentence, and adds up what each pair of parts carries."""
    q, k = project(job.q, job.heads, job.heads.w_q), project(job.k, job.heads, job.heads.w_k)
    H = job.heads.n_heads
    pairs, biases, squares, error = torch.zeros(5, 5, H).double(), torch.zeros(H).double(), torch.zeros(H).double(), 0.0
    for sentence in job.q_sentences.unique().tolist():
        rows, columns = ((each == sentence).nonzero()[:, 0] for each in (job.q_sentences, job.k_sentences))
        terms, bias, off = _split(job, q.of(rows), k.of(columns), (rows, columns))
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
    job: Job, q: Projected, k: Projected, rows: tuple[Tensor, Tensor]
) -> tuple[Float[Tensor, "5 5 H Q K"], Float[Tensor, "H Q K"], float]:
    """Gives the terms of one sentence, the bias, and how far the terms are off the layer's own scores."""
    attention, position = job.heads.attention, job.heads.position
    terms = pair_terms(attention, q, k)
    scores = attention.scores(q.whole[None], k.whole[None])
    places = job.q.positions[rows[0]][None], job.k.positions[rows[1]][None]
    bias = position.bias(q.whole[None], k.whole[None], *places)
    off = share(terms.sum((0, 1)) - scores[0].double(), scores)
    added = torch.zeros_like(scores[0]) if bias is None else bias[0].expand_as(scores[0])
    return terms, added.double(), off


def _allowed(job: Job, rows: Tensor, columns: Tensor) -> Bool[Tensor, "Q K"]:
    """Tells which keys may be seen: a decoder's own up to the query's, all others all."""
    if job.kind != "decoder":
        return torch.ones(len(rows), len(columns), dtype=torch.bool)
    return job.k.positions[columns] <= job.q.positions[rows][:, None]


def _centred(scores: Float[Tensor, "H Q K"], allowed: Bool[Tensor, "Q K"]) -> Float[Tensor, "H Q K"]:
    """Takes the mean over the keys that may be seen off each row; the others are 0."""
    means = (scores * allowed).sum(-1, keepdim=True) / allowed.sum(-1, keepdim=True)
    return (scores - means) * allowed
