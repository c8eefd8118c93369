"""Settings become modules; pairs of parts without a meaning are refused here."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch import nn

from regard.attention import ATTENTION
from regard.config import HeadsSettings, PartSettings, checked, choose, unknown
from regard.model import MultiHeadAttention
from regard.model.multihead import check_sizes
from regard.position import POSITION

M = TypeVar("M", bound=nn.Module)

_NO_DOT = "its term q·a belongs to a dot product of q with k + a, and {} takes none"
REFUSED = {
    (
        "additive",
        "rotary",
    ): "turning q and k leaves tanh(W_q q + W_k k) a function of both positions, not of their distance",
    (
        "bilinear",
        "rotary",
    ): "W does not commute with the rotations, so the score depends on both positions, not on their distance",
    ("additive", "shaw"): _NO_DOT.format("additive attention"),
    ("additive", "difference"): _NO_DOT.format("additive attention"),
    ("bilinear", "shaw"): _NO_DOT.format("bilinear attention"),
    ("bilinear", "difference"): _NO_DOT.format("bilinear attention"),
    ("gaussian", "shaw"): _NO_DOT.format("a Gaussian kernel"),
    ("gaussian", "difference"): _NO_DOT.format("a Gaussian kernel"),
}


def build_heads(settings: HeadsSettings) -> MultiHeadAttention:
    """Makes one multi-head attention layer, or says why its parts do not go together."""
    d_model = settings.d_model
    given = (settings.d_query, settings.d_key, settings.d_value)
    d_query, d_key, d_value = (d_model if width is None else width for width in given)
    check_sizes(d_model, settings.n_heads, d_query, d_key, d_value)
    refuse_meaningless(settings.attention.name, settings.position.name)
    d_head = d_model // settings.n_heads
    sizes = {
        "n_heads": settings.n_heads,
        "d_head": d_head,
        "d_query": d_head,
        "d_key": d_head,
        "width": d_model,
        # Relative keys join the key inside the dot product, so they are scaled as it is.
        "scale": 1.0 if settings.attention.name == "dot" else d_head**-0.5,
    }
    attention = build_part(ATTENTION, settings.attention, "attention", sizes)
    position = build_part(POSITION, settings.position, "position", sizes)
    d_inputs = (d_query, d_key, d_value)
    return MultiHeadAttention(attention, position, d_model, settings.n_heads, d_inputs, settings.bias)


def refuse_meaningless(attention: str, position: str) -> None:
    """Raises ValueError, with the reason, for a pair that computes nothing anybody means."""
    reason = REFUSED.get((attention, position))
    if reason is not None:
        partners = [name for name in ATTENTION if (name, position) not in REFUSED]
        raise ValueError(f"{position!r} has no meaning with {attention!r}: {reason}; use {' or '.join(partners)}")


def build_part(table: Mapping[str, Callable[..., M]], part: PartSettings, what: str, sizes: Mapping[str, Any]) -> M:
    """Makes one part: of the sizes it gets those that its constructor names, of the options all."""
    make = choose(table, part.name, what)
    accepted = inspect.signature(make).parameters
    arguments = {size: value for size, value in sizes.items() if size in accepted}
    for option, value in part.options.items():
        if option not in accepted:
            raise ValueError(unknown(option, list(accepted), f"option of {what} {part.name!r}"))
        arguments[option] = checked(accepted[option].annotation, value, f"{what}.{option}")
    return make(**arguments)
