"""Scores as sums of content and position terms."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Bilinear, Dot, ScaledDot
from regard.model.layers import Embedding
from regard.model.multihead import MultiHeadAttention, split_heads
from regard.model.norm import BatchNorm, LayerNorm, Residual, RMSNorm

# Scores that are linear in the query and in the key, by the very class: another attention may do anything.
BILINEAR = {Dot, ScaledDot, Bilinear}
FOUR = ("content–content", "content–position", "position–content", "position–position")
CONSTANTS = "constants"
Named = dict[str, Float[Tensor, "Q K"]]


@dataclass(frozen=True, eq=False)
class Parts:
    """Queries and keys as sums of three: of the token, of its position, and of what all have in common.

    The last comes from the biases of the projections and of the norm before them.
    """

    q: Float[Tensor, "3 *H Q E"]
    k: Float[Tensor, "3 *H K E2"]

    def head(self, head: int) -> "Parts":
        """Return the parts of one head."""
        return Parts(self.q[:, head], self.k[:, head])


def by_content_and_position(alone: Attention, parts: Parts) -> Named:
    """Return the four terms of `(x + e)ᵀ W_Qᵀ W_K (y + f)`, and a fifth that holds all products with a constant."""
    q, k = parts.q, parts.k
    pairs = ((0, 0), (0, 1), (1, 0), (1, 1))
    named = {name: _scored(alone, q[i], k[j]) for name, (i, j) in zip(FOUR, pairs, strict=True)}
    return {**named, CONSTANTS: _scored(alone, q[2], k.sum(0)) + _scored(alone, q[0] + q[1], k[2])}


def by_frequency(
    alone: Attention,
    q: Float[Tensor, "Q E"],
    k: Float[Tensor, "K E2"],
    frequencies: Float[Tensor, " pairs"],
) -> Named:
    """Return the share of each pair of features, which turn together; an odd last feature does not turn."""
    named = {}
    for pair, frequency in enumerate(frequencies.tolist()):
        only = torch.zeros_like(q)
        only[:, 2 * pair : 2 * pair + 2] = q[:, 2 * pair : 2 * pair + 2]
        named[f"pair {pair}, ω = {frequency:.4g}"] = _scored(alone, only, k)
    n_turned = 2 * len(frequencies)
    if q.shape[-1] > n_turned:
        still = torch.cat([torch.zeros_like(q[:, :n_turned]), q[:, n_turned:]], dim=-1)
        named["not turned"] = _scored(alone, still, k)
    return named


@torch.no_grad()
def _scored(alone: Attention, q: Float[Tensor, "Q E"], k: Float[Tensor, "K E2"]) -> Float[Tensor, "Q K"]:
    return alone.scores(q[None, None], k[None, None])[0, 0]


# An affine map of one stream: a part of it goes in by the first function, the second is what all have in common.
Affine = tuple[Callable[[Tensor], Tensor], Tensor]


def first_parts(
    embedding: Embedding,
    residual: Residual,
    heads: MultiHeadAttention,
    ids: Int[Tensor, "1 T"],
    positions: Int[Tensor, "1 T"],
) -> Parts | None:
    """Split queries and keys of the first layer into token, position and constants, exactly.

    The position's part of the stream is what a token becomes that is all zeros. A norm before the layer is affine once
    its own mean and deviation are known, which are those of the whole stream; None where a norm is not known to be, or
    where nothing is added to the tokens.
    """
    words = embedding.table(ids) * embedding.table.embedding_dim**0.5
    x = embedding.position.embed(words, positions)
    if x is words:
        return None
    codes = embedding.position.embed(torch.zeros_like(words), positions).double()
    norm = _normed(residual, x.double())
    if norm is None:
        return None
    through, common = norm
    streams = torch.cat([through(x.double() - codes), through(codes), common.expand_as(codes)])  # (3, T, D)
    kind = torch.promote_types(x.dtype, torch.float32)
    q, k = (
        heads.position.rotate(split_heads(_project(streams, linear), heads.n_heads), positions).to("cpu", kind)
        for linear in (heads.w_q, heads.w_k)
    )
    return Parts(q, k)


def _project(streams: Float[Tensor, "3 T D"], linear: nn.Linear) -> Float[Tensor, "3 T D"]:
    """Project the parts; the projection's own bias goes with what all have in common."""
    out = streams @ linear.weight.double().T
    if linear.bias is not None:
        out[2] += linear.bias.double()
    return out


def _normed(residual: Residual, x: Float[Tensor, "1 T D"]) -> Affine | None:
    """Return the map from the stream to the layer's input."""
    if not residual.norm_first:
        return (lambda part: part), x.new_zeros(x.shape[-1])
    make = AFFINE.get(type(residual.norm))
    return None if make is None else make(residual.norm, x)


def _layer(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    scale = norm.weight.double() * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + norm.eps)
    return (lambda part: (part - part.mean(-1, keepdim=True)) * scale), norm.bias.double()


def _rms(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    eps = torch.finfo(norm.weight.dtype).eps if norm.eps is None else norm.eps
    scale = norm.weight.double() * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return (lambda part: part * scale), x.new_zeros(x.shape[-1])


def _batch(norm: Any, x: Float[Tensor, "1 T D"]) -> Affine:
    scale = norm.weight.double() * torch.rsqrt(norm.variance.double() + norm.eps)
    return (lambda part: part * scale), norm.bias.double() - norm.mean.double() * scale


# By the very class: another norm may do anything.
AFFINE: dict[type, Callable[[Any, Tensor], Affine]] = {LayerNorm: _layer, RMSNorm: _rms, BatchNorm: _batch}


@dataclass(frozen=True, eq=False)
class Terms:
    """Terms that add up to the scores; `error` is how far their sum is off, as a share of the largest score."""

    names: tuple[str, ...]
    terms: Float[Tensor, "n *H Q K"]
    total: Float[Tensor, "*H Q K"]  # the scores, bias included
    error: float

    def __getitem__(self, name: str) -> Float[Tensor, "*H Q K"]:
        """Return the term of a name."""
        if name not in self.names:
            raise ValueError(f"a term must be one of {', '.join(self.names)}, got {name!r}")
        return self.terms[self.names.index(name)]


def make_terms(named: dict[str, Float[Tensor, "Q K"]], total: Float[Tensor, "Q K"]) -> Terms:
    """Measure how well the terms of one head add up to its scores."""
    terms = torch.stack(list(named.values()))
    return Terms(tuple(named), terms, total, relative_error(terms.double().sum(0) - total.double(), total))


def stack_terms(heads: list[Terms]) -> Terms:
    """Set the terms of several heads side by side."""
    totals, terms = torch.stack([one.total for one in heads]), torch.stack([one.terms for one in heads], dim=1)
    return Terms(heads[0].names, terms, totals, max(one.error for one in heads))


def relative_error(difference: Float[Tensor, "..."], whole: Float[Tensor, "..."]) -> float:
    """Return the largest difference as a share of the largest number, or itself where all numbers are 0."""
    if difference.numel() == 0:
        return 0.0
    largest = float(whole.abs().max())
    return float(difference.abs().max()) / (largest or 1.0)
