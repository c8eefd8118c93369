"""The look at one attention that every trace gives, whatever computed it: arrays of NumPy, or tensors of PyTorch."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.shapes import Bool, Float
from regard.trace.decompose import Terms

KINDS = ("encoder", "decoder", "cross")


class AttentionMap(ABC):
    """One layer's attention in one run, of `n_queries` tokens to `n_keys`, made when asked for, head by head.

    `kind` is encoder, decoder or cross, layers and heads are counted from 0. Without a head, all come stacked. Numbers
    are tensors where PyTorch is installed, and NumPy's arrays where it is not.
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
        """The size of the numbers that were kept for it."""
        return 0

    @abstractmethod
    def weights(self, head: int | None = None) -> Float[Any, "*H Q K"]:
        """Return the weight of each key for each query; a query without allowed keys has zeros."""

    @abstractmethod
    def scores(self, head: int | None = None, bias: bool = True) -> Float[Any, "*H Q K"]:
        """Return the scores before the softmax, of forbidden pairs too; the position scheme's bias may be left out."""

    @abstractmethod
    def allowed(self, head: int) -> Bool[Any, "Q K"]:
        """Return true where a query may attend to a key."""

    @abstractmethod
    def output(self, head: int | None = None) -> Float[Any, "*H Q E"]:
        """Return what each query took from the values it saw."""

    @abstractmethod
    def entropy(self, head: int | None = None) -> Float[Any, "*H Q"]:
        """Return the entropy of each query's weights in nats: 0 where all weight is on one key."""

    @abstractmethod
    def terms(self, head: int | None = None) -> Terms:
        """Split the scores into the terms that add up to them."""

    @abstractmethod
    def error(self) -> float:
        """Return the largest difference of `weights @ v` from what the layer put out, as a share of the largest number.

        Not a number where the layer's output is not known.
        """

    @abstractmethod
    def store(self) -> "StoredPart":
        """Return notes and numbers for a file."""

    @abstractmethod
    def check(self) -> None:
        """Raise ValueError unless the numbers fit each other."""

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


def as_array(numbers: Any) -> np.ndarray:
    """Return numbers as NumPy has them; what it lacks, such as bfloat16, becomes float32."""
    if isinstance(numbers, np.ndarray):
        return numbers
    tensor = numbers.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()


def entropies(weights: Float[np.ndarray, "*B K"]) -> Float[np.ndarray, "*B"]:
    """Return the entropy of each row in nats, 0 log 0 being 0."""
    return -(weights * np.log(np.where(weights > 0, weights, 1))).sum(-1)


def mean_relative_entropy(
    attention_map: AttentionMap, weights: Float[np.ndarray, "H Q K"] | None = None
) -> Float[np.ndarray, " H"]:
    """Return each head's mean entropy as a share of log `n_keys`, the largest there can be; weights may be given.

    The mean is over queries with a choice of keys; 0 where there is none.
    """
    means = []
    for head in range(attention_map.n_heads):
        rows = as_array(attention_map.weights(head)) if weights is None else weights[head]
        n_keys = as_array(attention_map.allowed(head)).sum(-1)
        free = n_keys > 1
        shares = entropies(rows[free].astype(np.float64)) / np.log(n_keys[free])
        means.append(shares.sum() / max(free.sum(), 1))
    return np.array(means)


@dataclass(frozen=True, eq=False)
class StoredPart:
    """What JSON can hold, and arrays or tensors by their names."""

    notes: dict[str, Any]
    tensors: dict[str, Any] = field(default_factory=dict)

    def prefixed(self, name: str) -> dict[str, Any]:
        """Return the numbers with a name before theirs."""
        return {f"{name}.{key}": tensor for key, tensor in self.tensors.items()}


def without_prefix(tensors: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return back what `prefixed` named."""
    return {key.removeprefix(name + "."): x for key, x in tensors.items() if key.startswith(name + ".")}


def drop_missing(**tensors: Any) -> dict[str, Any]:
    """Leave out what is not there."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def check_shown(attention_map: AttentionMap) -> None:
    """Raise unless the weights and terms of the first and of the last head are finite numbers."""
    for head in {0, attention_map.n_heads - 1}:
        if not all(
            np.isfinite(as_array(x)).all() for x in (attention_map.weights(head), attention_map.terms(head).terms)
        ):
            raise ValueError(f"weights and scores of {attention_map} must be finite numbers, got others in head {head}")
    attention_map.error()


def check_numbers(name: str, numbers: Any, sizes: Sequence[int | None], dtype: Any = None) -> None:
    """Raise unless numbers have these sizes, None being any from 1 on, and are finite numbers of a type."""
    shape = tuple(numbers.shape)
    fits = len(shape) == len(sizes) and all(
        own == size if size is not None else own > 0 for own, size in zip(shape, sizes, strict=True)
    )
    if not fits or not (as_array(numbers).dtype.kind == "f" if dtype is None else numbers.dtype == dtype):
        expected = ", ".join("any" if size is None else str(size) for size in sizes)
        got = f"{numbers.dtype} of the shape {shape}"
        raise ValueError(f"{name} must have the shape ({expected}) of {dtype or 'floats'}, got {got}")
    if not np.isfinite(as_array(numbers)).all():
        raise ValueError(f"{name} must be finite numbers, got others")
