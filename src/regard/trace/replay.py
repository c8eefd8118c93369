"""One path through a model, read again with everything written down."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.model import DecoderOnly, MultiHeadAttention, Recurrent, Seq2Seq, Transformer
from regard.model.choices import log_probs, top
from regard.model.packed import restore_linears
from regard.position import Position
from regard.trace.flow import Flow
from regard.trace.parts import first_parts
from regard.trace.private import private_copy
from regard.trace.recorded import RecordedLook
from regard.trace.tape import Tape

N_ALTERNATIVES = 10


@dataclass(frozen=True, eq=False)
class Replay:
    """What was seen of one path: each attention, the stream's norms, and what might have been said instead."""

    looks: tuple[RecordedLook, ...]
    flows: tuple[Flow, ...]
    log_probs: Float[Tensor, " T"]  # of what was said, by this reading
    gains: Float[Tensor, "T A"]  # of the likeliest, likeliest first
    tokens: Int[Tensor, "T A"]


def replay(model: Seq2Seq, source: Sequence[int], said: Sequence[int]) -> Replay:
    """Reads a source, and a target as it was said, EOS included where the model said it.

    All goes through the plain modules that the model was made of, in one pass; 8-bit maps become float ones of the same
    numbers. The model itself is not touched.
    """
    plain: Any = restore_linears(private_copy(model.plain()))
    read = READ.get(type(plain))
    if read is None:
        known = ", ".join(each.__name__ for each in READ)
        raise ValueError(f"a model must be one of {known} to be looked into, got {type(plain).__name__}")
    device = next(plain.parameters()).device
    batch = make_batch([source], [said[:-1]]).to(device)
    tape = Tape()
    with torch.no_grad():
        logits, looks = read(plain, batch, tape)
        likely, tokens = top(log_probs(logits, None), N_ALTERNATIVES)
        every = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        here = every.gather(1, torch.tensor(said, device=device)[:, None])[:, 0]
    return Replay(tuple(looks), tuple(tape.flows), here.cpu(), likely.cpu(), tokens.cpu())


def _read_transformer(model: Any, batch: Batch, tape: Tape) -> tuple[Tensor, list[RecordedLook]]:
    """Reads the whole target at once."""
    for number, layer in enumerate(model.encoder.layers):
        tape.listen_to_heads(layer.attention, "encoder", number)
        tape.measure(layer.after_attention, "encoder", number, "attention")
        tape.measure(layer.after_feed_forward, "encoder", number, "feed_forward")
    for number, layer in enumerate(model.decoder.layers):
        tape.listen_to_heads(layer.attention, "decoder", number)
        tape.listen_to_heads(layer.cross_attention, "cross", number)
        for name in ("attention", "cross_attention", "feed_forward"):
            tape.measure(getattr(layer, f"after_{name}"), "decoder", number, name)
    logits = model(batch)[0]
    layers = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
    heads = {"cross": [layer.cross_attention for layer in model.decoder.layers]}
    heads |= {kind: [layer.attention for layer in stack] for kind, stack in layers.items()}
    looks = {(each.kind, each.layer): _turning(each.look(), heads[each.kind][each.layer]) for each in tape.heard}
    for kind, words, ids, positions in (
        ("encoder", model.src, batch.src.ids, batch.src.positions),
        ("decoder", model.tgt, batch.tgt.read, batch.tgt.positions),
    ):
        first: Any = layers[kind][0]
        parts = first_parts(words, first.after_attention, first.attention, ids, positions)
        looks[kind, 0] = replace(looks[kind, 0], parts=parts)
    return logits, list(looks.values())


def _read_decoder_only(model: Any, batch: Batch, tape: Tape) -> tuple[Tensor, list[RecordedLook]]:
    """Reads the whole text at once."""
    layers = model.decoder.layers
    for number, layer in enumerate(layers):
        tape.listen_to_heads(layer.attention, "decoder", number)
        for name in ("attention", "feed_forward"):
            tape.measure(getattr(layer, f"after_{name}"), "decoder", number, name)
    logits = model(batch)[0]
    looks = [_turning(each.look(), layers[each.layer].attention) for each in tape.heard]
    first = layers[0].after_attention, layers[0].attention
    parts = first_parts(model.tgt, *first, batch.tgt.read, batch.tgt.positions)
    return logits, [replace(looks[0], parts=parts), *looks[1:]]


def _read_recurrent(model: Any, batch: Batch, tape: Tape) -> tuple[Tensor, list[RecordedLook]]:
    """Reads token by token, as the model decodes; its kernels for whole sentences build no queries to look at."""
    tape.listen(model.attention, "cross", 0)
    state, logits = model.start(batch.src, 1), []
    for token in batch.tgt.read[0]:
        said, state = model.step(token[None], state)
        logits.append(said)
    return torch.cat(logits), [each.look() for each in tape.heard]


# By the very class: of another model's parts nobody knows which attention is which.
READ: dict[type, Callable[[Any, Batch, Tape], tuple[Tensor, list[RecordedLook]]]] = {
    Transformer: _read_transformer,
    Recurrent: _read_recurrent,
    DecoderOnly: _read_decoder_only,
}


def _turning(look: RecordedLook, heads: MultiHeadAttention) -> RecordedLook:
    """Adds how fast queries and keys turn, where the position scheme turns them."""
    return replace(look, frequencies=turning(heads.position, look.q.shape[-1]))


def turning(position: Position, width: int) -> Float[Tensor, " pairs"] | None:
    """Measures the angle by which one step turns each pair of features; None where nothing turns."""
    pairs = torch.zeros(1, 1, 1, width, dtype=torch.float64)
    pairs[..., : width // 2 * 2 : 2] = 1.0
    turned = position.rotate(pairs, torch.ones(1, 1, dtype=torch.int64))
    if turned is pairs:
        return None
    cos, sin = turned[0, 0, 0, : width // 2 * 2].unflatten(-1, (-1, 2)).unbind(-1)
    return torch.atan2(sin, cos)
