"""Attention of other people's modules: `nn.MultiheadAttention`, and traces made of any maps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import signature
from math import nan
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention import ScaledDot
from regard.config import DecodeSettings
from regard.mask import Mask
from regard.trace.attention import ProjectedAttention, RecordedAttention
from regard.trace.attention_map import KINDS, AttentionMap
from regard.trace.replay import to_cpu
from regard.trace.search_tree import KEPT, OPEN, ROOT, SearchTree
from regard.trace.trace import OutputToken, Trace, check_sides


def trace_from_attention(
    attention_maps: tuple[AttentionMap, ...],
    source: Sequence[str],
    read: Sequence[str],
    steps: Sequence[OutputToken] | None = None,
    text: str = "",
    output: str = "",
) -> Trace:
    """Make a trace of one path: what is not known of it is not a number."""
    written = (
        [OutputToken(piece, nan, nan, ()) for piece in [*read[1:], "…"][: len(read)]] if steps is None else list(steps)
    )
    tree = single_path_tree([step.piece for step in written], [step.log_prob for step in written])
    settings = DecodeSettings(method="greedy")
    rest = (tuple(source), tuple(read), tuple(written), attention_maps, (), tree, tree.best)
    trace = Trace(text, output, "", "", settings, *rest)
    check_sides(trace)
    return trace


def single_path_tree(pieces: Sequence[str], gains: Sequence[float]) -> SearchTree:
    """Make a tree that is a trunk; its tokens are counted, since it is not known what numbers they had."""
    n = len(pieces)
    fates = np.array([KEPT] * (n - 1) + [OPEN] * min(n, 1), dtype=np.int8)
    parents, tokens = np.arange(ROOT, n - 1), np.arange(n)
    return SearchTree(parents, tokens, np.array(gains, dtype=float), fates, dict(enumerate(pieces)), n - 1, 1.0)


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """One call of one module: what it was given, and what it put out."""

    name: str
    module: nn.MultiheadAttention
    given: dict[str, Any]
    out: Tensor  # batch first

    @property
    def kind(self) -> str:
        """Cross where keys are not the queries, else decoder where the module's name says so, else encoder."""
        if self.given["query"] is not self.given["key"]:
            return "cross"
        return "decoder" if "decoder" in self.name else "encoder"


@dataclass(eq=False)
class AttentionCalls:
    """What was seen of a module while it ran."""

    calls: list[AttentionCall] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The module of each call, in the order in which they ran."""
        return [call.name for call in self.calls]

    def attention(self, sequence: int = 0) -> tuple[AttentionMap, ...]:
        """Return all calls for one sequence of the batch; each kind's layers are counted in the order they ran."""
        counts: dict[str, int] = dict.fromkeys(KINDS, 0)
        found = []
        for call in self.calls:
            found.append(_attention_map(call, counts[call.kind], sequence))
            counts[call.kind] += 1
        return tuple(found)

    def trace(self, source: Sequence[str], read: Sequence[str] = (), sequence: int = 0) -> Trace:
        """Return the calls as a trace, with the tokens that the encoder and the decoder read."""
        return trace_from_attention(self.attention(sequence), source, read)


@contextmanager
def watch(module: nn.Module) -> Iterator[AttentionCalls]:
    """Write down every `nn.MultiheadAttention` of a module that is called inside the `with` block.

    PyTorch's fused layers go past the attention modules: they are switched off meanwhile, everywhere.
    """
    seen, names = AttentionCalls(), signature(nn.MultiheadAttention.forward)
    handles = []

    def listen(name: str, part: nn.MultiheadAttention) -> None:
        def hear(_: nn.Module, args: Any, kwargs: Any, out: tuple[Tensor, Tensor | None]) -> None:
            call = names.bind(part, *args, **kwargs)
            call.apply_defaults()
            whole = out[0] if part.batch_first or out[0].dim() == 2 else out[0].transpose(0, 1)
            seen.calls.append(AttentionCall(name, part, call.arguments, whole if whole.dim() == 3 else whole[None]))

        handles.append(part.register_forward_hook(hear, with_kwargs=True))

    for name, part in module.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            listen(name, part)
    was_fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield seen
    finally:
        torch.backends.mha.set_fastpath_enabled(was_fast)
        for handle in handles:
            handle.remove()


@torch.no_grad()
def _attention_map(call: AttentionCall, layer: int, sequence: int) -> ProjectedAttention:
    """Recompute what the module made of one sequence before its softmax."""
    B = len(call.out)
    if not 0 <= sequence < B:
        raise ValueError(f"sequence must lie in 0 … {B - 1}, got {sequence}")
    q, k, v = (_row(call, name, sequence) for name in ("query", "key", "value"))  # (T, D)
    q, k, v = _project(call.module, q, k, v)
    bias = _bias(call, sequence, k.shape[1], q.dtype)
    k, v, bias = _append_own_keys(call.module, k, v, bias)
    allowed = None if bias is None else bias > -torch.inf
    bias = None if bias is None else bias.masked_fill(bias == -torch.inf, 0.0)
    mask = Mask() if allowed is None or allowed.all() else Mask(allowed=allowed[None].cpu())
    added = to_cpu(bias) if bias is not None and bias.any() else None
    attention, project = ScaledDot().eval(), call.module.out_proj
    q, k, v = to_cpu(q), to_cpu(k), to_cpu(v)
    attention_map = RecordedAttention(call.kind, layer, attention, q, k, v, mask, added, None)
    offset = None if project.bias is None else to_cpu(project.bias)
    return ProjectedAttention(attention_map, to_cpu(project.weight), offset, to_cpu(call.out[sequence]))


def _row(call: AttentionCall, name: str, sequence: int) -> Tensor:
    x = call.given[name]
    if x.dim() == 2:
        return x
    return x[sequence] if call.module.batch_first else x[:, sequence]


def _project(module: nn.MultiheadAttention, *inputs: Tensor) -> list[Tensor]:
    """Return queries, keys and values of each head, (H, T, E)."""
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None,) * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    made = [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]
    return [x.unflatten(-1, (module.num_heads, -1)).transpose(0, 1) for x in made]


def _bias(call: AttentionCall, sequence: int, n_keys: int, dtype: torch.dtype) -> Tensor | None:
    """Join the two masks into what is added to the scores, −∞ where looking is forbidden, (#H, #Q, K)."""
    padding, rule = call.given["key_padding_mask"], call.given["attn_mask"]
    parts = []
    if padding is not None:
        parts.append(_additive_mask(padding.reshape(-1, n_keys)[sequence][None, None], dtype))
    if rule is not None:
        rule = rule[None] if rule.dim() == 2 else rule.unflatten(0, (-1, call.module.num_heads))[sequence]
        parts.append(_additive_mask(rule, dtype))
    return sum(parts[1:], parts[0]) if parts else None


def _additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """PyTorch's masks are true where looking is forbidden, or numbers that are added."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)


def _append_own_keys(
    module: nn.MultiheadAttention, k: Tensor, v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Add the keys that a module has besides those it is given: a learned one, and one of zeros."""
    for key, value in _own_keys(module, k, v):
        k, v = torch.cat([k, key], dim=1), torch.cat([v, value], dim=1)
        bias = None if bias is None else F.pad(bias, (0, 1))
    return k, v, bias


def _own_keys(module: nn.MultiheadAttention, k: Tensor, v: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    if module.bias_k is not None and module.bias_v is not None:
        own = (x[0].unflatten(-1, (module.num_heads, -1)).transpose(0, 1) for x in (module.bias_k, module.bias_v))
        key, value = own
        yield key, value
    if module.add_zero_attn:
        yield torch.zeros_like(k[:, :1]), torch.zeros_like(v[:, :1])
