"""Parts of a trace as notes and tensors, which a file can hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.attention import ATTENTION, Attention
from regard.build import build_part
from regard.config import PartSettings, choose
from regard.mask import Mask


@dataclass(frozen=True, eq=False)
class StoredPart:
    """What JSON can hold, and tensors by their names."""

    notes: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def prefixed(self, name: str) -> dict[str, Tensor]:
        """Return the tensors with a name before theirs."""
        return {f"{name}.{key}": tensor for key, tensor in self.tensors.items()}


def without_prefix(tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return back what `under` named."""
    return {key.removeprefix(name + "."): x for key, x in tensors.items() if key.startswith(name + ".")}


def drop_missing(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Leave out what is not there."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


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
