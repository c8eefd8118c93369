"""What PyTorch's modules attended to: recorded, given, projected."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention import ATTENTION, Attention, Bilinear, Dot, ScaledDot
from regard.build import build_part
from regard.config import PartSettings, choose
from regard.mask import Mask
from regard.shapes import Bool, Float
from regard.trace.attention_map import (
    AttentionMap,
    StoredPart,
    check_numbers,
    check_shown,
    drop_missing,
    without_prefix,
)
from regard.trace.decompose import (
    Named,
    Parts,
    Score,
    Terms,
    by_content_and_position,
    by_frequency,
    relative_error,
)

# Scores that are linear in the query and in the key, by the very class: another attention may do anything.
BILINEAR = {Dot, ScaledDot, Bilinear}


class TensorMap(AttentionMap):
    """A look whose numbers are tensors."""

    def entropy(self, head: int | None = None) -> Float[Tensor, "*H Q"]:
        return torch.special.entr(self.weights(head)).sum(-1)


# Numbers of one block of rows: some attentions need a feature vector for each pair while they score it.
BLOCK_ELEMENTS = 2**24


@dataclass(frozen=True, eq=False, repr=False)
class RecordedAttention(TensorMap):
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
        if head is not None:
            return made[0]
        totals, terms = torch.stack([one.total for one in made]), torch.stack([one.terms for one in made], dim=1)
        return Terms(made[0].names, terms, totals, max(one.error for one in made))

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

    def check(self) -> None:
        (H, Q, K), E, dtype = self.sizes, self.v.shape[-1], self.q.dtype
        check_numbers("q", self.q, (None, None, None))
        check_numbers("k", self.k, (H, None, None), dtype)
        check_numbers("v", self.v, (H, K, None), dtype)
        for name, numbers in drop_missing(out=self.out, extra=self.extra).items():
            check_numbers(name, numbers, (H, Q, E), dtype)
        if self.bias is not None:
            check_numbers("bias", self.bias, _broadcast(self.bias, (H, Q, K)), dtype)
        if self.parts is not None:
            check_numbers("parts.q", self.parts.q, (3, *self.q.shape), dtype)
            check_numbers("parts.k", self.parts.k, (3, *self.k.shape), dtype)
        if self.frequencies is not None:
            check_numbers("frequencies", self.frequencies, (self.q.shape[-1] // 2,))
        for name, parameter in self.attention.named_parameters():
            check_numbers(name, parameter, (None,) * parameter.dim(), dtype)
            if len(parameter) != H:
                raise ValueError(f"{name} must have {H} heads, got the shape {tuple(parameter.shape)}")
        _check_mask(self.mask, (1, H, Q, K))
        check_shown(self)

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
        named = named if self.bias is None else {**named, "bias": total - scores}
        terms = torch.stack(list(named.values()))
        return Terms(tuple(named), terms, total, relative_error(terms.double().sum(0) - total.double(), total))

    def _split(self, head: int) -> Named:
        if type(self.attention) not in BILINEAR:
            return {}
        score = _score_of(self.attention.head(head))
        if self.parts is not None:
            return by_content_and_position(score, self.parts.head(head))
        if self.frequencies is not None:
            return by_frequency(score, self.q[head], self.k[head], self.frequencies)
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


def _score_of(attention: Attention) -> Score:
    @torch.no_grad()
    def score(q: Float[Tensor, "Q E"], k: Float[Tensor, "K E2"]) -> Float[Tensor, "Q K"]:
        return attention.scores(q[None, None], k[None, None])[0, 0]

    return score


def store_mask(mask: Mask) -> StoredPart:
    """Take a mask apart."""
    notes = {"n_keys": mask.n_keys, "causal": mask.causal, "window": mask.window, "offset": mask.offset}
    lengths = {"key_lengths": mask.key_lengths, "query_lengths": mask.query_lengths}
    return StoredPart({**notes, "sighted": mask.no_empty_rows}, drop_missing(**lengths, allowed=mask.allowed))


def restore_mask(notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Mask:
    """Put a mask together again."""
    parts: dict[str, Any] = {**notes, **tensors}
    return Mask(no_empty_rows=parts.pop("sighted"), **parts)  # the file's own word for it


def store_attention(attention: Attention) -> StoredPart:
    """Name an attention by its place in the table, and keep its parameters."""
    names = [name for name, each in ATTENTION.items() if each is type(attention)]
    if not names:
        kind = type(attention).__name__
        raise ValueError(f"an attention must stand in the table ATTENTION to be saved in a trace, got {kind}: add it")
    return StoredPart({"name": names[0]}, dict(attention.named_parameters()))


def restore_attention(
    notes: Mapping[str, Any], tensors: Mapping[str, Tensor], sizes: tuple[int, int, int]
) -> Attention:
    """Make an attention for so many heads, queries and keys of these widths, with its old parameters."""
    choose(ATTENTION, notes["name"], "attention")
    n_heads, d_query, d_key = sizes
    named = {"n_heads": n_heads, "d_query": d_query, "d_key": d_key}
    attention = build_part(ATTENTION, PartSettings(notes["name"]), "attention", named).eval()
    for name, tensor in tensors.items():
        setattr(attention, name, nn.Parameter(tensor, requires_grad=False))  # of whatever size it was built with
    return attention


def _check_mask(mask: Mask, sizes: tuple[int, int, int, int]) -> None:
    numbers = {"n_keys": mask.n_keys, "window": mask.window, "offset": mask.offset}
    if wrong := [x for x in numbers.values() if x is not None and (type(x) is not int or not 0 <= x < 2**31)]:
        raise ValueError(f"n_keys, window and offset of a mask must be numbers of places, got {wrong[0]!r}")
    if type(mask.causal) is not bool or type(mask.no_empty_rows) is not bool or mask.offset is None:
        raise ValueError(f"causal must be true or false, got {mask.causal!r}")
    for name, tensor in (("key_lengths", mask.key_lengths), ("query_lengths", mask.query_lengths)):
        if tensor is not None and (tensor.shape not in {(1,), (1, sizes[2])} or tensor.dtype != torch.int64):
            got = f"{tensor.dtype} of the shape {tuple(tensor.shape)}"
            raise ValueError(f"{name} of a mask must be whole numbers, one or {sizes[2]} of them, got {got}")
    if mask.allowed is not None:
        check_numbers("allowed", mask.allowed, _broadcast(mask.allowed, sizes), torch.bool)


def _broadcast(tensor: Tensor, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a tensor must have: its own where it has one number for all of an axis."""
    if tensor.dim() != len(sizes):
        return sizes
    return tuple(1 if own == 1 else size for own, size in zip(tensor.shape, sizes, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class GivenAttention(TensorMap):
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

    def check(self) -> None:
        check_numbers("weights", self.given, (None, None, None))

    def store(self) -> StoredPart:
        return StoredPart({"form": "given", "kind": self.kind, "layer": self.layer}, {"given": self.given})

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "GivenAttention":
        """Restore what `store` returned."""
        return cls(notes["kind"], notes["layer"], tensors["given"])

    def _missing(self, what: str) -> str:
        return f"{what} must be recorded in the run, and of {self.kind} layer {self.layer} only weights were given"


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedAttention(TensorMap):
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

    def check(self) -> None:
        self.recorded.check()
        (H, Q, _), E = self.sizes, self.recorded.v.shape[-1]
        check_numbers("weight", self.weight, (None, H * E))
        check_numbers("whole", self.whole, (Q, len(self.weight)))
        if self.offset is not None:
            check_numbers("offset", self.offset, self.weight.shape[:1])
        self.error()

    @classmethod
    def restore(cls, notes: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "ProjectedAttention":
        """Restore what `store` returned."""
        look = RecordedAttention.restore(notes, without_prefix(tensors, "look"))
        return cls(look, tensors["weight"], tensors.get("offset"), tensors["whole"])


FORMS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], AttentionMap]] = {
    "recorded": RecordedAttention.restore,
    "given": GivenAttention.restore,
    "projected": ProjectedAttention.restore,
}
