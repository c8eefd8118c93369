"""A look that keeps what went into the attention, and asks the attention itself when somebody wants to see."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.attention import Attention
from regard.mask import Mask
from regard.trace.look import Look
from regard.trace.split import BILINEAR, Named, Parts, by_content_and_position, by_frequency
from regard.trace.stored import (
    Stored,
    below,
    present,
    restore_attention,
    restore_mask,
    store_attention,
    store_mask,
)
from regard.trace.terms import Terms, make_terms, share, stacked

# Numbers of one block of rows: some attentions need a feature vector for each pair while they score it.
BLOCK_ELEMENTS = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class RecordedLook(Look):
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
        """Splits as far as an exact split is known; all terms of a scheme stand in `split.py`.

        Deeper layers mix tokens with positions, and scores that are not bilinear have no split: there all but the bias
        is one term.
        """
        made = [self._terms(h) for h in self._heads(head)]
        return stacked(made) if head is None else made[0]

    def error(self) -> float:
        if self.out is None:
            return nan
        return max(share(self._mixed(h) - self.out[h], self.out) for h in range(self.n_heads))

    def store(self) -> Stored:
        mask, attention = store_mask(self.mask), store_attention(self.attention)
        notes = {"form": "recorded", "kind": self.kind, "layer": self.layer}
        tensors = present(bias=self.bias, out=self.out, extra=self.extra, frequencies=self.frequencies)
        tensors |= {} if self.parts is None else {"parts.q": self.parts.q, "parts.k": self.parts.k}
        tensors |= {"q": self.q, "k": self.k, "v": self.v}
        inside = mask.under("mask") | attention.under("attention")
        return Stored({**notes, "mask": mask.notes, "attention": attention.notes}, {**tensors, **inside})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "RecordedLook":
        """Puts the look together again."""
        q, k, v = (tensors[name] for name in ("q", "k", "v"))
        sizes = (len(q), q.shape[-1], k.shape[-1])
        attention = restore_attention(notes["attention"], below(tensors, "attention"), sizes)
        mask = restore_mask(notes["mask"], below(tensors, "mask"))
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
            return by_content_and_position(alone, self.parts.of(head))
        if self.frequencies is not None:
            return by_frequency(alone, self.q[head], self.k[head], self.frequencies)
        return {}

    def _mixed(self, head: int) -> Tensor:
        return self.weights(head) @ self.v[head]

    def _asked(self, head: int | None, look: Callable[..., Tensor]) -> Tensor:
        """Asks the attention about each head by itself, some rows at a time."""
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
        """Gives the rule for some rows of one head."""
        allowed = self.mask.tile(rows, range(self.k.shape[1]), self.q.device)
        if allowed is None:
            return Mask()
        return Mask(allowed=allowed if allowed.shape[1] == 1 else allowed[:, head : head + 1])

    def _bias(self, head: int, rows: range) -> Tensor | None:
        if self.bias is None:
            return None
        bias = self.bias if self.bias.shape[0] == 1 else self.bias[head : head + 1]
        return (bias if bias.shape[1] == 1 else bias[:, rows.start : rows.stop])[None]
