"""What one attention computed: recorded, given, projected."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Attention
from regard.mask import Mask
from regard.trace.decompose import (
    BILINEAR,
    Named,
    Parts,
    Terms,
    by_content_and_position,
    by_frequency,
    make_terms,
    relative_error,
    stack_terms,
)
from regard.trace.stored import (
    StoredPart,
    drop_missing,
    restore_attention,
    restore_mask,
    store_attention,
    store_mask,
    without_prefix,
)

KINDS = ("encoder", "decoder", "cross")


class AttentionMap(ABC):
    """One layer's attention in one run, of `n_queries` tokens to `n_keys`, made when asked for, head by head.

    `kind` is encoder, decoder or cross, layers and heads are counted from 0. Without a head, all come stacked.
    """

    kind: str
    layer: int

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int, int]:
        """The number of heads, of queries and of keys."""

    @property
    def n_heads(self) -> int:
        return self.sizes[0]

    @property
    def n_bytes(self) -> int:
        """The size of the tensors that were kept for it."""
        return 0

    @abstractmethod
    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        """Return the weight of each key for each query; a query without allowed keys has zeros."""

    @abstractmethod
    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        """Return the scores before the softmax, of forbidden pairs too; the position scheme's bias may be left out."""

    @abstractmethod
    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        """Return true where a query may attend to a key."""

    @abstractmethod
    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        """Return what each query took from the values it saw."""

    @abstractmethod
    def terms(self, head: int | None = None) -> Terms:
        """Split the scores into the terms that add up to them."""

    @abstractmethod
    def error(self) -> float:
        """Return the largest difference of `weights @ v` from what the layer put out, as a share of the largest number.

        Not a number where the layer's output is not known.
        """

    @abstractmethod
    def store(self) -> StoredPart:
        """Return notes and tensors for a file."""

    def entropy(self, head: int | None = None) -> Float[Tensor, "*H Q"]:
        """Return the entropy of each query's weights in nats: 0 where all weight is on one key."""
        return torch.special.entr(self.weights(head)).sum(-1)

    def __repr__(self) -> str:
        heads, queries, keys = self.sizes
        return f"AttentionMap({self.kind} layer {self.layer}: {heads} heads, {queries} queries, {keys} keys)"

    def _heads(self, head: int | None) -> range:
        """Return the heads that are asked for, or say which there are."""
        if head is None:
            return range(self.n_heads)
        if not 0 <= head < self.n_heads:
            raise ValueError(f"head must lie in 0 … {self.n_heads - 1} of {self.kind} layer {self.layer}, got {head}")
        return range(head, head + 1)


def relative_entropy(entropy: Float[Tensor, "*B Q"], n_keys: Int[Tensor, "*B Q"]) -> Float[Tensor, "*B Q"]:
    """Return entropies as a share of log `n_keys`, the largest there can be; 0 where a query has one key or none."""
    return entropy / n_keys.clamp(min=2).to(entropy.dtype).log() * (n_keys > 1)


def mean_relative_entropy(
    attention: AttentionMap, weights: Float[Tensor, "H Q K"] | None = None
) -> Float[Tensor, " H"]:
    """Return each head's mean relative entropy over queries with a choice of keys; weights are made if not given."""
    means = []
    for head in range(attention.n_heads):
        rows = attention.weights(head) if weights is None else weights[head]
        n_keys = attention.allowed(head).sum(-1)
        shares = relative_entropy(torch.special.entr(rows.double()).sum(-1), n_keys)
        means.append(shares.sum() / (n_keys > 1).sum().clamp(min=1))
    return torch.stack(means)


# Numbers of one block of rows: some attentions need a feature vector for each pair while they score it.
BLOCK_ELEMENTS = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class RecordedAttention(AttentionMap):
    """Queries, keys and values of one attention in one run, and what it put out."""

    kind: str
    layer: int
    attention: Attention
    q: Float[Tensor, "H Q E"]
    k: Float[Tensor, "H K E2"]
    v: Float[Tensor, "H K E3"]
    mask: Mask
    bias: Float[Tensor, "#H #Q #K"] | None
    out: Float[Tensor, "H Q E3"] | None  # of the attention itself, where it was seen
    extra: Float[Tensor, "H Q E3"] | None = None  # what the position scheme added to it
    parts: Parts | None = None  # of queries and keys, where they are known
    frequencies: Float[Tensor, " pairs"] | None = None  # by which pairs of features turn from place to place

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.q.shape[0], self.q.shape[1], self.k.shape[1]

    @property
    def n_bytes(self) -> int:
        parts = () if self.parts is None else (self.parts.q, self.parts.k)
        kept = (self.q, self.k, self.v, self.out, self.extra, self.bias, *parts)
        return sum(x.nbytes for x in kept if x is not None)

    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        return self._asked(head, lambda alone, q, k, mask, bias: alone.weights(q, k, mask, bias))

    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        if self.bias is None or not bias:
            return self._asked(head, lambda alone, q, k, mask, added: alone.scores(q, k))
        return self._asked(head, lambda alone, q, k, mask, added: alone.scores(q, k) + added)

    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        _, Q, K = self.sizes
        rule = self._mask(head, range(Q)).allowed
        return torch.ones(Q, K, dtype=torch.bool) if rule is None else rule[0, 0].expand(Q, K)

    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        mixed = torch.stack([self._mixed(h) for h in self._heads(head)])
        mixed = mixed if self.extra is None else mixed + self.extra[self._heads(head)]
        return mixed if head is None else mixed[0]

    def terms(self, head: int | None = None) -> Terms:
        """Split as far as an exact split is known; all terms of a scheme stand in `split.py`.

        Deeper layers mix tokens with positions, and scores that are not bilinear have no split: there all but the bias
        is one term.
        """
        made = [self._terms(h) for h in self._heads(head)]
        return stack_terms(made) if head is None else made[0]

    def error(self) -> float:
        if self.out is None:
            return nan
        return max(relative_error(self._mixed(h) - self.out[h], self.out) for h in range(self.n_heads))

    def store(self) -> StoredPart:
        mask, attention = store_mask(self.mask), store_attention(self.attention)
        notes = {"form": "recorded", "kind": self.kind, "layer": self.layer}
        tensors = drop_missing(bias=self.bias, out=self.out, extra=self.extra, frequencies=self.frequencies)
        tensors |= {} if self.parts is None else {"parts.q": self.parts.q, "parts.k": self.parts.k}
        tensors |= {"q": self.q, "k": self.k, "v": self.v}
        inside = mask.prefixed("mask") | attention.prefixed("attention")
        return StoredPart({**notes, "mask": mask.notes, "attention": attention.notes}, {**tensors, **inside})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "RecordedAttention":
        """Restore what `store` returned."""
        q, k, v = (tensors[name] for name in ("q", "k", "v"))
        sizes = (len(q), q.shape[-1], k.shape[-1])
        attention = restore_attention(notes["attention"], without_prefix(tensors, "attention"), sizes)
        mask = restore_mask(notes["mask"], without_prefix(tensors, "mask"))
        parts = Parts(tensors["parts.q"], tensors["parts.k"]) if "parts.q" in tensors else None
        bias, out, extra, turns = (tensors.get(name) for name in ("bias", "out", "extra", "frequencies"))
        return cls(notes["kind"], notes["layer"], attention, q, k, v, mask, bias, out, extra, parts, turns)

    def _terms(self, head: int) -> Terms:
        scores, total = self.scores(head, bias=False), self.scores(head)
        named = self._split(head) or {"score" if self.bias is None else "content": scores}
        return make_terms(named if self.bias is None else {**named, "bias": total - scores}, total)

    def _split(self, head: int) -> Named:
        if type(self.attention) not in BILINEAR:
            return {}
        alone = self.attention.head(head)
        if self.parts is not None:
            return by_content_and_position(alone, self.parts.head(head))
        if self.frequencies is not None:
            return by_frequency(alone, self.q[head], self.k[head], self.frequencies)
        return {}

    def _mixed(self, head: int) -> Tensor:
        return self.weights(head) @ self.v[head]

    def _asked(self, head: int | None, look: Callable[..., Tensor]) -> Tensor:
        """Ask the attention about each head by itself, some rows at a time."""
        heads, (_, Q, K) = self._heads(head), self.sizes
        seen = self.q.new_empty(len(heads), Q, K)
        with torch.no_grad():
            for place, h in enumerate(heads):
                alone, k = self.attention.head(h), self.k[None, h : h + 1]
                for rows in self._blocks():
                    q = self.q[None, h : h + 1, rows.start : rows.stop]
                    seen[place, rows.start : rows.stop] = look(alone, q, k, self._mask(h, rows), self._bias(h, rows))
        return seen if head is None else seen[0]

    def _blocks(self) -> Iterator[range]:
        _, Q, K = self.sizes
        width = max(self.q.shape[-1], self.k.shape[-1], *(p.shape[-1] for p in self.attention.parameters()))
        n = max(1, BLOCK_ELEMENTS // max(1, K * width))
        return (range(start, min(start + n, Q)) for start in range(0, Q, n))

    def _mask(self, head: int, rows: range) -> Mask:
        """Return the rule for some rows of one head."""
        allowed = self.mask.tile(rows, range(self.k.shape[1]), self.q.device)
        if allowed is None:
            return Mask()
        return Mask(allowed=allowed if allowed.shape[1] == 1 else allowed[:, head : head + 1])

    def _bias(self, head: int, rows: range) -> Tensor | None:
        if self.bias is None:
            return None
        bias = self.bias if self.bias.shape[0] == 1 else self.bias[head : head + 1]
        return (bias if bias.shape[1] == 1 else bias[:, rows.start : rows.stop])[None]


@dataclass(frozen=True, eq=False, repr=False)
class GivenAttention(AttentionMap):
    """Weights as they were handed over; what they were made of is not known."""

    kind: str
    layer: int
    given: Float[Tensor, "H Q K"]

    @property
    def sizes(self) -> tuple[int, int, int]:
        heads, queries, keys = self.given.shape
        return heads, queries, keys

    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        chosen = self.given[self._heads(head)]
        return chosen if head is None else chosen[0]

    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        raise ValueError(self._missing("scores"))

    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        return self.weights(head) > 0

    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        raise ValueError(self._missing("outputs"))

    def terms(self, head: int | None = None) -> Terms:
        raise ValueError(self._missing("terms"))

    def error(self) -> float:
        return torch.nan

    def store(self) -> StoredPart:
        return StoredPart({"form": "given", "kind": self.kind, "layer": self.layer}, {"given": self.given})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "GivenAttention":
        """Restore what `store` returned."""
        return cls(notes["kind"], notes["layer"], tensors["given"])

    def _missing(self, what: str) -> str:
        return f"{what} must be recorded in the run, and of {self.kind} layer {self.layer} only weights were given"


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedAttention(AttentionMap):
    """A recorded attention, checked against `concat(heads) Wᵀ + b`, which is all that the layer put out."""

    recorded: RecordedAttention
    weight: Float[Tensor, "D D2"]
    offset: Float[Tensor, " D"] | None
    whole: Float[Tensor, "Q D"]

    @property
    def kind(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.recorded.kind

    @property
    def layer(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.recorded.layer

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.recorded.sizes

    def weights(self, head: int | None = None) -> Float[Tensor, "*H Q K"]:
        return self.recorded.weights(head)

    def scores(self, head: int | None = None, bias: bool = True) -> Float[Tensor, "*H Q K"]:
        return self.recorded.scores(head, bias)

    def allowed(self, head: int) -> Bool[Tensor, "Q K"]:
        return self.recorded.allowed(head)

    def output(self, head: int | None = None) -> Float[Tensor, "*H Q E"]:
        return self.recorded.output(head)

    def terms(self, head: int | None = None) -> Terms:
        return self.recorded.terms(head)

    def error(self) -> float:
        made = self.output().transpose(0, 1).flatten(1) @ self.weight.T
        made = made if self.offset is None else made + self.offset
        return relative_error(made - self.whole, self.whole)

    def store(self) -> StoredPart:
        inside = self.recorded.store()
        tensors = {"weight": self.weight, "whole": self.whole, **drop_missing(offset=self.offset)}
        return StoredPart({**inside.notes, "form": "projected"}, {**tensors, **inside.prefixed("look")})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "ProjectedAttention":
        """Restore what `store` returned."""
        look = RecordedAttention.restore(notes, without_prefix(tensors, "look"))
        return cls(look, tensors["weight"], tensors.get("offset"), tensors["whole"])
