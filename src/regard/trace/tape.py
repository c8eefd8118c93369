"""What is written down while a model reads: the inputs of each attention, and the norms of the stream."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.model import MultiHeadAttention
from regard.model.heads import split_heads
from regard.model.residual import Residual
from regard.position import ByOffset
from regard.trace.flow import Flow
from regard.trace.private import private_copy
from regard.trace.recorded import RecordedLook


@dataclass(eq=False)
class Heard:
    """The calls of one attention: one, or one for each token where a decoder goes step by step."""

    kind: str
    layer: int
    attention: Attention
    calls: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    merged: list[Tensor] = field(default_factory=list)  # heads side by side, as the layer projects them

    def hear(self, module: Attention, args: Any, kwargs: Any, out: Tensor) -> None:
        """Writes one call down."""
        call = signature(module.forward).bind(*args, **kwargs)
        call.apply_defaults()
        self.calls.append(call.arguments)
        self.outputs.append(out)

    def look(self) -> RecordedLook:
        """Joins the calls; keys and values are the same in all of them."""
        first = self.calls[0]
        q, out = torch.cat([call["q"] for call in self.calls], dim=2), torch.cat(self.outputs, dim=2)
        bias = first["bias"]
        bias = bias.written_out(q.dtype) if isinstance(bias, ByOffset) else bias
        q_kept, k_kept, v_kept, out_kept = (kept(x[0]) for x in (q, first["k"], first["v"], out))
        attention = deepcopy(private_copy(self.attention)).requires_grad_(False).to("cpu", q_kept.dtype)
        seen = (attention, q_kept, k_kept, v_kept, first["mask"], None if bias is None else kept(bias[0]), out_kept)
        return RecordedLook(self.kind, self.layer, *seen, self._extra(out))

    def _extra(self, out: Tensor) -> Tensor | None:
        """Gives what the position scheme added to the output, where it added anything."""
        if not self.merged:
            return None
        extra = split_heads(torch.cat(self.merged, dim=1), out.shape[1]) - out
        return kept(extra[0]) if extra.any() else None


@dataclass(eq=False)
class Gauge:
    """Measures the vectors around one sub-layer."""

    place: tuple[str, int, str]
    flows: list[Flow]
    norms: tuple[Tensor, Tensor] | None = None

    def before(self, module: Residual, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Has the sub-layer measured when it runs."""
        x, update, real = args
        return x, partial(self.measured, x, update), real

    def measured(self, x: Tensor, update: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        """Runs the sub-layer."""
        out = update(h)
        self.norms = _norms(x), _norms(out)
        return out

    def after(self, module: Residual, args: tuple[Any, ...], out: Tensor) -> None:
        """Writes the norms down."""
        assert self.norms is not None, "a residual runs its sub-layer"
        self.flows.append(Flow(*self.place, *self.norms, _norms(out)))


class Tape:
    """Listens to parts of a model, which must be somebody's private copy."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.flows: list[Flow] = []

    def listen(self, attention: Attention, kind: str, layer: int) -> Heard:
        """Writes down what goes into an attention and what comes out."""
        heard = Heard(kind, layer, attention)
        attention.register_forward_hook(heard.hear, with_kwargs=True)
        self.heard.append(heard)
        return heard

    def listen_to_heads(self, heads: MultiHeadAttention, kind: str, layer: int) -> None:
        """Writes down besides what the layer makes of the attention's output before it projects it."""
        heard = self.listen(heads.attention, kind, layer)
        heads.w_o.register_forward_pre_hook(lambda module, args: heard.merged.append(args[0]))

    def measure(self, residual: Residual, stack: str, layer: int, sublayer: str) -> None:
        """Writes down how long the stream's vectors are around a sub-layer."""
        gauge = Gauge((stack, layer, sublayer), self.flows)
        residual.register_forward_pre_hook(gauge.before)
        residual.register_forward_hook(gauge.after)


def kept(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Keeps a tensor on the CPU, in float32 at least; a copy of its own, so that it does not hold a larger one."""
    return x.detach().to("cpu", torch.promote_types(x.dtype, torch.float32), copy=True).contiguous()


def _norms(x: Tensor) -> Tensor:
    return kept(x[0]).norm(dim=-1)
