"""Which queries may attend to which keys: rules kept apart, so that kernels can stay fused."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.shapes import Bool, Int, Shaped


@dataclass(frozen=True, eq=False)
class Mask:
    """A conjunction of rules, true where attention is allowed; `Mask()` allows everything.

    The functions below make masks from a user's values and check them; `&` joins masks. Code that runs inside a
    captured step may build a mask directly from tensors it has already checked.
    """

    n_keys: int | None = None  # that the lengths were checked against
    key_lengths: Int[Tensor, " B"] | Int[Tensor, "B Q"] | None = None  # keys from here on are padding
    query_lengths: Int[Tensor, " B"] | None = None  # queries from here on are padding and may attend to nothing
    causal: bool = False  # no key after the query
    window: int | None = None  # no key farther away than this
    offset: int = 0  # keys before the first query, as in a cache
    allowed: Bool[Tensor, "#B #H #Q #K"] | None = None  # anything else
    no_empty_rows: bool = False  # known without reading tensors: every query is allowed some key

    def __and__(self, other: "Mask") -> "Mask":
        return Mask(
            n_keys=_agreed(self.n_keys, other.n_keys, "n_keys"),
            key_lengths=_shorter(self.key_lengths, other.key_lengths),
            query_lengths=_shorter(self.query_lengths, other.query_lengths),
            causal=self.causal or other.causal,
            window=min((m.window for m in (self, other) if m.window is not None), default=None),
            offset=_joint_offset(self, other),
            allowed=_both(self.allowed, other.allowed),
        )

    def tile(self, rows: range, keys: range, device: torch.device) -> Bool[Tensor, "#B #H #Q #K"] | None:
        """Return for some rows and some keys where attention is allowed; None where it is everywhere."""
        q = torch.arange(rows.start, rows.stop, device=device)[:, None]  # (Q, 1)
        k = torch.arange(keys.start, keys.stop, device=device)  # (K)
        rules: list[Tensor] = []
        if self.key_lengths is not None:
            ends = self.key_lengths if self.key_lengths.dim() == 1 else self.key_lengths[:, rows.start : rows.stop]
            rules.append(k < ends.reshape(len(ends), 1, -1, 1))  # (B, 1, 1 or Q, K)
        if self.query_lengths is not None:
            rules.append(q < self.query_lengths.reshape(-1, 1, 1, 1))  # (B, 1, Q, 1)
        if self.bounds_future(keys.stop - 1 - rows.start):
            rules.append((k <= q + self.offset)[None, None])
        if self.window is not None:
            rules.append(((q + self.offset - k).abs() <= self.window)[None, None])
        if self.allowed is not None:
            rules.append(_cut(_cut(self.allowed, 2, rows), 3, keys))
        return _conjunction(rules)

    def select(self, sequences: Int[Tensor, " M"]) -> "Mask":
        """Return the mask of some sequences of a batch."""
        lengths = None if self.key_lengths is None else self.key_lengths[sequences]
        queries = None if self.query_lengths is None else self.query_lengths[sequences]
        each = self.allowed is not None and len(self.allowed) > 1
        allowed = self.allowed[sequences] if each else self.allowed  # pyright: ignore[reportOptionalSubscript]
        return replace(self, key_lengths=lengths, query_lengths=queries, allowed=allowed)

    def bounds_future(self, ahead: int) -> bool:
        """Return whether causality forbids the first query a key that stands `ahead` columns after it."""
        return self.causal and ahead > self.offset

    def hides(self, rows: range, keys: range) -> bool:
        """Return, without reading a tensor, whether causality or the window forbids this whole tile."""
        nearest_past = rows.start + self.offset - (keys.stop - 1)
        nearest_future = keys.start - (rows.stop - 1 + self.offset)
        too_far = self.window is not None and max(nearest_past, nearest_future) > self.window
        return too_far or (self.causal and nearest_future > 0)

    def check(self, B: int, H: int, Q: int, K: int) -> None:
        """Raise ValueError if this mask was made for other sizes."""
        if self.n_keys is not None and self.n_keys != K:
            raise ValueError(f"the mask's lengths were made for {self.n_keys} keys, got {K} keys")
        for name, lengths in (("key_lengths", self.key_lengths), ("query_lengths", self.query_lengths)):
            if lengths is not None and tuple(lengths.shape) not in {(B,), (B, Q)}:
                raise ValueError(f"{name} must have shape ({B},) or ({B}, {Q}), got {tuple(lengths.shape)}")
        if self.allowed is not None:
            shape = tuple(self.allowed.shape)
            if any(size not in {1, full} for size, full in zip(shape, (B, H, Q, K), strict=True)):
                raise ValueError(f"a mask must broadcast to (B, H, Q, K) = {(B, H, Q, K)}, got shape {shape}")


def padding(lengths: Sequence[int] | Shaped[Tensor, "..."], n_keys: int) -> Mask:
    """Allow the first `lengths[b]` keys of each sequence, or the first `lengths[b, q]` for each query."""
    return Mask(n_keys=n_keys, key_lengths=_check_lengths(lengths, n_keys))


def padding_both(lengths: Sequence[int] | Shaped[Tensor, "..."], n_tokens: int) -> Mask:
    """Mask the padding of a sequence that attends to itself, as keys and as queries; padded queries return zeros.

    Joined with `causal()` this stays on the fused causal kernel, since padded keys come after all other queries.
    """
    checked = _check_lengths(lengths, n_tokens)
    if checked.dim() != 1:
        raise ValueError(f"lengths must be one number for each sequence here, got shape {tuple(checked.shape)}")
    return Mask(n_keys=n_tokens, key_lengths=checked, query_lengths=checked)


def causal(offset: int = 0) -> Mask:
    """Allow each query the keys up to its own position; `offset` keys stand before the first query."""
    if offset < 0:
        raise ValueError(f"offset must be 0 or more keys before the first query, got {offset}")
    return Mask(causal=True, offset=offset)


def window(width: int, offset: int = 0) -> Mask:
    """Allow each query the keys at most `width` positions away on either side."""
    if width < 0 or offset < 0:
        raise ValueError(f"width and offset must be 0 or more, got {width} and {offset}")
    return Mask(window=width, offset=offset)


def allow(allowed: Shaped[Tensor, "..."]) -> Mask:
    """Take any boolean mask, true where attention is allowed: (Q, K), (B, Q, K) or (B, H, Q, K), each size or 1."""
    if allowed.dtype != torch.bool:
        raise ValueError(f"a mask must be boolean, true where looking is allowed, got {allowed.dtype}")
    if not 2 <= allowed.dim() <= 4:
        raise ValueError(f"a mask must be (Q, K), (B, Q, K) or (B, H, Q, K), got shape {tuple(allowed.shape)}")
    head_axis = 1 if allowed.dim() == 3 else 0
    while allowed.dim() < 4:
        allowed = allowed.unsqueeze(head_axis)
    return Mask(allowed=allowed)


def _check_lengths(lengths: Sequence[int] | Tensor, n_keys: int) -> Tensor:
    lengths = torch.as_tensor(lengths)
    if lengths.dim() not in {1, 2}:
        raise ValueError(f"lengths must be (B) or (B, Q), got shape {tuple(lengths.shape)}")
    if lengths.is_floating_point() and lengths.isnan().any():
        raise ValueError("lengths must be whole numbers, got nan")
    if lengths.is_floating_point() or lengths.dtype == torch.bool or lengths.is_complex():
        raise ValueError(f"lengths must be whole numbers, got {lengths.dtype}")
    if lengths.numel():
        low, high = (int(end) for end in torch.aminmax(lengths))
        if low < 0 or high > n_keys:
            raise ValueError(f"lengths must lie in 0 … {n_keys} (the number of keys), got {low if low < 0 else high}")
    return lengths


def _joint_offset(a: Mask, b: Mask) -> int:
    given = [mask.offset for mask in (a, b) if mask.causal or mask.window is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise ValueError(f"two masks must agree on the offset, got {given[0]} and {given[1]}")
    return max(given, default=0)


def _agreed(a: int | None, b: int | None, name: str) -> int | None:
    if a is not None and b is not None and a != b:
        raise ValueError(f"two masks must agree on {name}, got {a} and {b}")
    return b if a is None else a


def _shorter(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None or a is b:
        return b if a is None else a
    if a.dim() == b.dim():
        return torch.minimum(a, b)
    return torch.minimum(*(x if x.dim() == 2 else x[:, None] for x in (a, b)))


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return a & b if a is not None and b is not None else (b if a is None else a)


def _cut(tensor: Tensor, axis: int, span: range) -> Tensor:
    return tensor if tensor.shape[axis] == 1 else tensor.narrow(axis, span.start, len(span))


def _conjunction(rules: list[Tensor]) -> Tensor | None:
    if not rules:
        return None
    allowed = rules[0]
    for rule in rules[1:]:
        allowed = allowed & rule
    return allowed
