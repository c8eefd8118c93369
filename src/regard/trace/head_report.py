"""What heads attend to, and what the model loses without each."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.batch import Batch
from regard.config import choose
from regard.data.tokenizer import Side, Tokenizer
from regard.model import Seq2Seq
from regard.padding import EOS
from regard.pipeline.translator import Translator
from regard.search.scoring import pair_batches
from regard.shapes import Bool, Float, Int
from regard.trace.head_ablation import (
    ProgressBar,
    Quality,
    attention_maps,
    find_heads,
    measure_quality,
    no_progress,
    plain_copy,
    zero_head,
)
from regard.trace.summary import MARK


@dataclass(frozen=True)
class HeadStats:
    """Means of one head's rows: entropy in nats and as a share of the largest there can be, key − query, and shares.

    The shares are those of the weight that lie on the query's own place, the one before and after it, the first token,
    the end of the sentence and punctuation. A decoder's own tokens have no end among them, and begin with BOS.
    """

    entropy: float
    spread: float
    offset: float
    diagonal: float
    previous: float
    next: float
    first: float
    end: float | None
    punctuation: float


@dataclass(frozen=True, eq=False)
class AttentionContext:
    """The queries of one kind of attention, how many keys each may attend to, and what these keys are."""

    query_mask: Bool[Tensor, "B Q"]
    n_keys: Int[Tensor, "B Q"]
    end: Bool[Tensor, "B K"]
    punctuation: Bool[Tensor, "B K"]


def attention_contexts(
    batch: Batch, is_punctuation: tuple[Bool[Tensor, " V"], Bool[Tensor, " V2"]]
) -> dict[str, AttentionContext]:
    """Return the context of each kind of attention in a batch; punctuation is given by id, for either side."""
    src, read, said = batch.src, batch.tgt.inputs, batch.tgt.token_mask
    in_src, in_tgt = is_punctuation[0][src.ids], is_punctuation[1][read]
    real = src.token_mask
    far = src.lengths[:, None]
    before = torch.arange(1, read.shape[1] + 1, device=read.device)
    return {
        "encoder": AttentionContext(real, far.expand_as(real), src.ids == EOS, in_src),
        "decoder": AttentionContext(said, before.expand_as(said), read == EOS, in_tgt),
        "cross": AttentionContext(said, far.expand_as(said), src.ids == EOS, in_src),
    }


def relative_entropy(entropy: Float[Tensor, "*B Q"], n_keys: Int[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
    """Return entropies as a share of log `n_keys`, the largest there can be; 0 where a query has one key or none."""
    return entropy / n_keys.clamp(min=2).to(entropy.dtype).log() * (n_keys > 1)


def stat_sums(weights: Float[Tensor, "B H Q K"], context: AttentionContext) -> Float[Tensor, "11 H"]:
    """Add over all real queries of a batch what means are made of: the habits in their order, and two counts.

    The counts are those of queries, and of queries that had a choice between keys, for the spread.
    """
    weights = weights.double() * context.query_mask[:, None, :, None]
    Q, K = weights.shape[-2:]
    ahead = torch.arange(K, device=weights.device) - torch.arange(Q, device=weights.device)[:, None]  # (Q, K)
    entropy = torch.special.entr(weights).sum(-1)  # (B, H, Q)
    free = context.query_mask & (context.n_keys > 1)
    share = relative_entropy(entropy, context.n_keys[:, None].expand_as(entropy)) * free[:, None]
    by_key = weights.sum(2)  # (B, H, K)
    places = [(weights * (ahead == step)).sum((0, 2, 3)) for step in (0, -1, 1)]
    marks = [(by_key * mark[:, None]).sum((0, 2)) for mark in (context.end, context.punctuation)]
    counts = [each.sum().expand(weights.shape[1]).double() for each in (context.query_mask, free)]
    spread = [entropy.sum((0, 2)), share.sum((0, 2)), (weights * ahead).sum((0, 2, 3))]
    return torch.stack([*spread, *places, by_key[..., 0].sum(0), *marks, *counts])


def mean_stats(kind: str, sums: Sequence[float]) -> HeadStats:
    """Make means of one head's sums."""
    *totals, n, n_free = sums
    entropy, spread, *others = totals
    offset, diagonal, previous, after, first, end, punctuation = (each / max(n, 1) for each in others)
    means = entropy / max(n, 1), spread / max(n_free, 1), offset, diagonal, previous, after, first
    return HeadStats(*means, None if kind == "decoder" else end, punctuation)


def is_punctuation(piece: str) -> bool:
    """Return whether a piece is made of signs alone that Unicode calls punctuation, with or without a space."""
    signs = piece.replace(MARK, "")
    return bool(signs) and all(unicodedata.category(sign).startswith("P") for sign in signs)


def punctuation_ids(tokenizer: Tokenizer, side: Side) -> Bool[Tensor, " V"]:
    """Return true for each id that is punctuation."""
    return torch.tensor([is_punctuation(each) for each in tokenizer.pieces(range(tokenizer.vocab_size(side)), side)])


Layer = tuple[str, int]  # the kind of attention, and the number of the layer

STATS = tuple(field.name for field in fields(HeadStats))
ORDERS = ("loss", "bleu", *STATS, "kind", "layer", "head")


@dataclass(frozen=True)
class HeadSummary:
    """One head, its habits, and what is lost without it: the rise of the loss, the fall of BLEU where measured."""

    kind: str
    layer: int
    head: int
    habits: HeadStats
    loss: float
    bleu: float | None

    def __str__(self) -> str:
        return f"{self.kind}:{self.layer}:{self.head}"


@dataclass(frozen=True)
class HeadReport:
    """All heads of a model on some pairs, and how good it is there with all of them."""

    heads: list[HeadSummary]
    whole: Quality
    n_pairs: int
    n_tokens: int  # of the target
    n_unread: int  # pairs that were left out, since a side is empty or longer than the model reads

    def ranked(self, by: str = "loss") -> "HeadReport":
        """Sort heads by a measure from the largest down, what was not measured last; by a place from the first on."""
        choose(dict.fromkeys(ORDERS), by, "order of heads")
        return replace(self, heads=sorted(self.heads, key=lambda head: _rank(head, by)))


def report_heads(
    translator: Translator, pairs: Sequence[tuple[str, str]], bleu: bool = False, bar: ProgressBar = no_progress
) -> HeadReport:
    """Look at every head on some pairs, and switch each off: one pass for the habits of all, then one for each.

    With `bleu` the sources are also translated greedily, once for each head. The translator's model is not touched.
    """
    read, batches = _batches(translator, pairs)
    model, translated = plain_copy(translator.model), read if bleu else []
    whole = measure_quality(model, batches, translator, translated)
    stats = _head_stats(model, translator.tokenizer, bar(batches, len(batches), "looking at heads"))
    places = [(place, head) for place in find_heads(model) for head in range(place.n_heads)]
    heads = []
    for place, head in bar(places, len(places), "switching heads off"):
        with zero_head(place.read_by[head]):
            lost = _loss_without(whole, measure_quality(model, batches, translator, translated))
        heads.append(HeadSummary(place.kind, place.layer, head, stats[place.kind, place.layer][head], *lost))
    n_tokens = sum(batch.tgt.n_tokens for batch in batches)
    return HeadReport(heads, whole, len(read), n_tokens, len(pairs) - len(read))


def _batches(translator: Translator, pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[Batch]]:
    """Return the pairs that the model can read, and their batches."""
    src = translator.tokenizer.encode_batch([pair[0] for pair in pairs], "src")
    tgt = translator.tokenizer.encode_batch([pair[1] for pair in pairs], "tgt")
    lengths = [(len(one), len(other)) for one, other in zip(src, tgt, strict=True)]
    fit = [n for n, both in enumerate(lengths) if min(both) > 0 and max(both) <= translator.max_len]
    if not fit:
        raise ValueError(f"a report on heads needs pairs that the model can read, got 0 of {len(pairs)}")
    batches = pair_batches([src[n] for n in fit], [tgt[n] for n in fit])
    return [pairs[n] for n in fit], [batch for _, batch in batches]


def _head_stats(model: Seq2Seq, tokenizer: Tokenizer, batches: Iterable[Batch]) -> dict[Layer, list[HeadStats]]:
    """Return the habits of every head of every layer."""
    flags, sums = (punctuation_ids(tokenizer, "src"), punctuation_ids(tokenizer, "tgt")), {}
    for batch in batches:
        attention_maps(
            model, batch.to(next(model.parameters()).device), partial(_add, sums, attention_contexts(batch, flags))
        )
    return {place: [mean_stats(place[0], each) for each in total.T.tolist()] for place, total in sums.items()}


def _add(sums: dict[Layer, Tensor], seen: dict[str, AttentionContext], kind: str, layer: int, weights: Tensor) -> None:
    here = stat_sums(weights.cpu(), seen[kind])
    sums[kind, layer] = sums[kind, layer] + here if (kind, layer) in sums else here


def _loss_without(whole: Quality, without: Quality) -> tuple[float, float | None]:
    fall = None if whole.bleu is None or without.bleu is None else whole.bleu - without.bleu
    return without.loss - whole.loss, fall


def _rank(head: HeadSummary, by: str) -> tuple[Any, ...]:
    """Return what heads are compared by; equal ones stay in the order of the model."""
    if by in {"kind", "layer", "head"}:
        return (getattr(head, by),)
    value = getattr(head.habits if by in STATS else head, by)
    return value is None, -(value or 0.0)
