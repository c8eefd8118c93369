"""The contract of an attention: its weights (the definition), its forward pass (fast), and the checks of a call."""

from abc import ABC, abstractmethod
from copy import copy

import torch
from torch import Tensor, nn

from regard.mask import Mask
from regard.position.contract import OffsetBias, Position, dense
from regard.shapes import Bool, Float, Int


def masked_softmax(
    scores: Float[Tensor, "B H Q K"], allowed: Bool[Tensor, "#B #H #Q #K"] | None
) -> Float[Tensor, "B H Q K"]:
    """Normalise each row over its allowed keys: `exp(s_i) / Σ_j exp(s_j)`, and exactly 0 elsewhere.

    A row without an allowed key is all zeros. It passes the softmax as if all keys were allowed, so that the backward
    pass never meets a NaN.
    """
    if allowed is None:
        return torch.softmax(scores, dim=-1)
    empty = ~allowed.any(dim=-1, keepdim=True)  # (#B, #H, #Q, 1)
    scores = scores.masked_fill(~(allowed | empty), float("-inf"))
    return torch.softmax(scores, dim=-1).masked_fill(~allowed, 0.0)


class Attention(nn.Module, ABC):
    """Average values by weights: `out = Σ_i α(q, k_i) v_i` with `α = softmax_i(a(q, k_i) + bias)`.

    A subclass defines the score `a` plainly in `scores`, and a `forward` that need never build the weights. A test over
    the table keeps the two equal, in value and in gradient.
    """

    def __init__(self, dropout: float):
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must lie in [0, 1), got {dropout}")
        self.dropout = dropout

    @abstractmethod
    def scores(self, q: Float[Tensor, "B H Q E"], k: Float[Tensor, "B H K E2"]) -> Float[Tensor, "B H Q K"]:
        """Return the score of every query with every key, before mask, bias and softmax."""

    @abstractmethod
    def forward(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        v: Float[Tensor, "B H K E3"],
        mask: Mask = Mask(),
        bias: Float[Tensor, "#B #H #Q #K"] | None = None,
        features: Float[Tensor, "B H K F"] | None = None,
    ) -> Float[Tensor, "B H Q E3"]:
        """Return `weights(q, k, mask, bias) @ v` on the fastest path; drop weights out while training.

        The bias comes from `position_bias`, or is a tensor. A caller that has `key_features(k)` already passes them
        beside the keys.
        """

    def position_bias(
        self,
        position: Position,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        v: Float[Tensor, "B H K E3"],
        q_positions: Int[Tensor, "#B Q *axes"],
        k_positions: Int[Tensor, "#B K *axes"],
    ) -> Float[Tensor, "#B H Q K"] | OffsetBias | None:
        """Return what positions add to the scores, in the form that `forward` takes fastest."""
        return position.bias(q, k, q_positions, k_positions)

    def key_features(self, k: Float[Tensor, "B H K E2"]) -> Float[Tensor, "B H K F"]:
        """Return the part of the score that depends on the keys alone, which all queries share."""
        return k

    @abstractmethod
    def kernel(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        v: Float[Tensor, "B H K E3"],
        mask: Mask = Mask(),
        bias: Float[Tensor, "#B #H #Q #K"] | None = None,
    ) -> str:
        """Return the name of the kernel that `forward` runs on these inputs."""

    def weights(
        self,
        q: Float[Tensor, "B H Q E"],
        k: Float[Tensor, "B H K E2"],
        mask: Mask = Mask(),
        bias: Float[Tensor, "#B #H #Q #K"] | OffsetBias | None = None,
    ) -> Float[Tensor, "B H Q K"]:
        """Return the weight of every key for every query: the definition of this attention. Θ(QK) memory."""
        bias = dense(bias, q.dtype)
        check(q, k, k, mask, bias)
        scores = self.scores(q, k)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        return masked_softmax(scores, mask.tile(range(q.shape[2]), range(k.shape[2]), q.device))

    def head(self, head: int) -> "Attention":
        """Return this attention for one head, for queries and keys of that head alone.

        Parameters have a row for each head or one for all; an attention with others overrides this.
        """
        alone = copy(self)
        rows = {name: p if p is None or len(p) == 1 else p[head : head + 1] for name, p in self._parameters.items()}
        alone._parameters = rows  # pyright: ignore[reportAttributeAccessIssue]
        return alone

    def current_dropout(self) -> float:
        """Return the share of weights to drop in this call: none outside training."""
        return self.dropout if self.training else 0.0


def check(q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | OffsetBias | None) -> None:
    """Raise ValueError where the sizes of one call do not fit together."""
    shapes = f"got q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(f"q, k and v must be (B, H, length, width), {shapes}")
    if not q.shape[:2] == k.shape[:2] == v.shape[:2]:
        raise ValueError(f"q, k and v must share batch and heads, {shapes}")
    if k.shape[2] != v.shape[2]:
        raise ValueError(f"there must be one value for each key, {shapes}")
    (B, H, Q, _), K = q.shape, k.shape[2]
    mask.check(B, H, Q, K)
    full = (B, H, Q, K)
    if bias is not None and not _broadcasts(tuple(bias.shape), full):
        raise ValueError(f"a bias must broadcast to (B, H, Q, K) = {full}, got shape {tuple(bias.shape)}")


def _broadcasts(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    return len(shape) == len(full) and all(size in {1, want} for size, want in zip(shape, full, strict=True))


def check_parameters(q: Tensor, k: Tensor, n_heads: int, d_query: int, d_key: int) -> None:
    """Raise ValueError where an attention's own parameters were made for other sizes."""
    if q.shape[1] != n_heads:
        raise ValueError(f"this attention was built for {n_heads} heads, got {q.shape[1]}")
    if (q.shape[-1], k.shape[-1]) != (d_query, d_key):
        raise ValueError(
            f"this attention was built for queries of width {d_query} and keys of width {d_key}, "
            f"got {q.shape[-1]} and {k.shape[-1]}"
        )


def same_width(q: Tensor, k: Tensor, name: str) -> None:
    """Raise ValueError where queries and keys must be equally wide and are not."""
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{name} needs queries and keys of one width, got {q.shape[-1]} and {k.shape[-1]}")
