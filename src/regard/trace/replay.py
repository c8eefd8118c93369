"""Replay a path of a search through the plain model with hooks."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from regard.attention import Attention
from regard.batch import Batch, make_batch
from regard.model import DecoderOnly, MultiHeadAttention, Recurrent, Seq2Seq, Transformer
from regard.model.multihead import split_heads
from regard.model.norm import Residual
from regard.model.quantize import dequantize_linears
from regard.model.seq2seq import allowed_log_probs, label_log_probs, top_k
from regard.position import OffsetBias, Position
from regard.shapes import Float
from regard.trace.attention import RecordedAttention
from regard.trace.first_layer import first_parts
from regard.trace.trace import N_ALTERNATIVES, Replay, ResidualNorms

M = TypeVar("M", bound=nn.Module)


def private_copy(module: M) -> M:
    """Copy a module and all inside it, at rest and without hooks; parameters and buffers stay the same tensors.

    A module that stands in several places becomes several, so that each place can be told apart.
    """
    copied = copy(module)
    copied._modules = {name: None if child is None else private_copy(child) for name, child in module._modules.items()}
    for hooks in (
        "_forward_hooks",
        "_forward_pre_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_pre_hooks_with_kwargs",
    ):
        setattr(copied, hooks, OrderedDict())
    copied.training = False
    return copied


@dataclass(eq=False)
class Recording:
    """The calls of one attention: one, or one for each token where a decoder goes step by step."""

    kind: str
    layer: int
    attention: Attention
    calls: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    merged: list[Tensor] = field(default_factory=list)  # heads side by side, as the layer projects them

    def record(self, module: Attention, args: Any, kwargs: Any, out: Tensor) -> None:
        """Write one call down."""
        call = signature(module.forward).bind(*args, **kwargs)
        call.apply_defaults()
        self.calls.append(call.arguments)
        self.outputs.append(out)

    def attention_map(self) -> RecordedAttention:
        """Join the calls; keys and values are the same in all of them."""
        first = self.calls[0]
        q, out = torch.cat([call["q"] for call in self.calls], dim=2), torch.cat(self.outputs, dim=2)
        bias = first["bias"]
        bias = bias.materialise(q.dtype) if isinstance(bias, OffsetBias) else bias
        q_kept, k_kept, v_kept, out_kept = (to_cpu(x[0]) for x in (q, first["k"], first["v"], out))
        attention = deepcopy(private_copy(self.attention)).requires_grad_(False).to("cpu", q_kept.dtype)
        seen = (attention, q_kept, k_kept, v_kept, first["mask"], None if bias is None else to_cpu(bias[0]), out_kept)
        return RecordedAttention(self.kind, self.layer, *seen, self._extra(out))

    def _extra(self, out: Tensor) -> Tensor | None:
        """Return what the position scheme added to the output, where it added anything."""
        if not self.merged:
            return None
        extra = split_heads(torch.cat(self.merged, dim=1), out.shape[1]) - out
        return to_cpu(extra[0]) if extra.any() else None


class Recorder:
    """Listens to parts of a model, which must be somebody's private copy."""

    def __init__(self) -> None:
        self.recordings: list[Recording] = []
        self.residual_norms: list[ResidualNorms] = []

    def record_attention(self, attention: Attention, kind: str, layer: int) -> Recording:
        """Write down what goes into an attention and what comes out."""
        recording = Recording(kind, layer, attention)
        attention.register_forward_hook(recording.record, with_kwargs=True)
        self.recordings.append(recording)
        return recording

    def record_heads(self, heads: MultiHeadAttention, kind: str, layer: int) -> None:
        """Write down besides what the layer makes of the attention's output before it projects it."""
        recording = self.record_attention(heads.attention, kind, layer)
        heads.w_o.register_forward_pre_hook(lambda module, args: recording.merged.append(args[0]))

    def record_norms(self, residual: Residual, stack: str, layer: int, sublayer: str) -> None:
        """Write down how long the stream's vectors are around a sub-layer."""

        def hook(module: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
            x, update, _ = args
            self.residual_norms.append(ResidualNorms(stack, layer, sublayer, _norms(x), _norms(update), _norms(out)))

        residual.register_forward_hook(hook)


def to_cpu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Keep a tensor on the CPU, in float32 at least; a copy of its own, so that it does not hold a larger one."""
    return x.detach().to("cpu", torch.promote_types(x.dtype, torch.float32), copy=True).contiguous()


def _norms(x: Tensor) -> Tensor:
    return to_cpu(x[0]).norm(dim=-1)


def replay(model: Seq2Seq, source: Sequence[int], written: Sequence[int]) -> Replay:
    """Read a source, and a target as it was said, EOS included where the model said it.

    All goes through the plain modules that the model was made of, in one pass; 8-bit maps become float ones of the same
    numbers. The model itself is not touched.
    """
    plain: Any = dequantize_linears(private_copy(model))
    read = READERS.get(type(plain))
    if read is None:
        known = ", ".join(each.__name__ for each in READERS)
        raise ValueError(f"a model must be one of {known} to be looked into, got {type(plain).__name__}")
    device = next(plain.parameters()).device
    batch = make_batch([source], [written[:-1]]).to(device)
    recorder = Recorder()
    with torch.no_grad():
        logits, attention_maps = read(plain, batch, recorder)
        likely, tokens = top_k(allowed_log_probs(logits, None), N_ALTERNATIVES)
        here = label_log_probs(logits, torch.tensor(written, device=device))
    return Replay(tuple(attention_maps), tuple(recorder.residual_norms), here.cpu(), likely.cpu(), tokens.cpu())


def _read_transformer(model: Any, batch: Batch, recorder: Recorder) -> tuple[Tensor, list[RecordedAttention]]:
    """Read the whole target at once."""
    for number, layer in enumerate(model.encoder.layers):
        recorder.record_heads(layer.attention, "encoder", number)
        recorder.record_norms(layer.after_attention, "encoder", number, "attention")
        recorder.record_norms(layer.after_feed_forward, "encoder", number, "feed_forward")
    for number, layer in enumerate(model.decoder.layers):
        recorder.record_heads(layer.attention, "decoder", number)
        recorder.record_heads(layer.cross_attention, "cross", number)
        for name in ("attention", "cross_attention", "feed_forward"):
            recorder.record_norms(getattr(layer, f"after_{name}"), "decoder", number, name)
    logits = model(batch)[0]
    layers = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
    heads = {"cross": [layer.cross_attention for layer in model.decoder.layers]}
    heads |= {kind: [layer.attention for layer in stack] for kind, stack in layers.items()}
    attention_maps = {
        (each.kind, each.layer): _with_frequencies(each.attention_map(), heads[each.kind][each.layer])
        for each in recorder.recordings
    }
    for kind, words, ids, positions in (
        ("encoder", model.src, batch.src.ids, batch.src.positions),
        ("decoder", model.tgt, batch.tgt.inputs, batch.tgt.positions),
    ):
        first: Any = layers[kind][0]
        parts = first_parts(words, first.after_attention, first.attention, ids, positions)
        attention_maps[kind, 0] = replace(attention_maps[kind, 0], parts=parts)
    return logits, list(attention_maps.values())


def _read_decoder_only(model: Any, batch: Batch, recorder: Recorder) -> tuple[Tensor, list[RecordedAttention]]:
    """Read the whole text at once."""
    layers = model.decoder.layers
    for number, layer in enumerate(layers):
        recorder.record_heads(layer.attention, "decoder", number)
        for name in ("attention", "feed_forward"):
            recorder.record_norms(getattr(layer, f"after_{name}"), "decoder", number, name)
    logits = model(batch)[0]
    attention_maps = [
        _with_frequencies(each.attention_map(), layers[each.layer].attention) for each in recorder.recordings
    ]
    first = layers[0].after_attention, layers[0].attention
    parts = first_parts(model.tgt, *first, batch.tgt.inputs, batch.tgt.positions)
    return logits, [replace(attention_maps[0], parts=parts), *attention_maps[1:]]


def _read_recurrent(model: Any, batch: Batch, recorder: Recorder) -> tuple[Tensor, list[RecordedAttention]]:
    """Read token by token, as the model decodes; its kernels for whole sentences build no queries to look at."""
    recorder.record_attention(model.attention, "cross", 0)
    state, logits = model.start(batch.src, 1), []
    for token in batch.tgt.inputs[0]:
        written, state = model.step(token[None], state)
        logits.append(written)
    return torch.cat(logits), [each.attention_map() for each in recorder.recordings]


# By the very class: of another model's parts nobody knows which attention is which.
READERS: dict[type, Callable[[Any, Batch, Recorder], tuple[Tensor, list[RecordedAttention]]]] = {
    Transformer: _read_transformer,
    Recurrent: _read_recurrent,
    DecoderOnly: _read_decoder_only,
}


def _with_frequencies(attention_map: RecordedAttention, heads: MultiHeadAttention) -> RecordedAttention:
    """Add how fast queries and keys turn, where the position scheme turns them."""
    return replace(attention_map, frequencies=rotation_frequencies(heads.position, attention_map.q.shape[-1]))


def rotation_frequencies(position: Position, width: int) -> Float[Tensor, " pairs"] | None:
    """Measure the angle by which one step turns each pair of features; None where nothing turns."""
    pairs = torch.zeros(1, 1, 1, width, dtype=torch.float64)
    pairs[..., : width // 2 * 2 : 2] = 1.0
    turned = position.rotate(pairs, torch.ones(1, 1, dtype=torch.int64))
    if turned is pairs:
        return None
    cos, sin = turned[0, 0, 0, : width // 2 * 2].unflatten(-1, (-1, 2)).unbind(-1)
    return torch.atan2(sin, cos)
