"""Record a search; replay its best path through the plain model with hooks."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention
from regard.batch import Batch, Source, make_batch
from regard.model import DecoderOnly, MultiHeadAttention, Recurrent, Seq2Seq, State, Transformer
from regard.model.multihead import split_heads
from regard.model.norm import Residual
from regard.model.quantize import dequantize_linears
from regard.model.seq2seq import Choices, log_probs, top
from regard.position import OffsetBias, Position
from regard.trace.attention import RecordedLook
from regard.trace.decompose import first_parts
from regard.trace.trace import Flow

M = TypeVar("M", bound=nn.Module)


def private_copy(module: M) -> M:
    """Copies a module and all inside it, at rest and without hooks; parameters and buffers stay the same tensors.

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
        bias = bias.materialise(q.dtype) if isinstance(bias, OffsetBias) else bias
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


@dataclass(eq=False)
class Search:
    """What one search was told: at each step the likeliest continuations of each hypothesis, sentence by sentence."""

    left: list[int]  # the sentences that are still being written
    answers: list[list[Choices]] = field(default_factory=list)  # of each sentence, N hypotheses a step

    def hear(self, said: Choices) -> None:
        """Writes an answer down."""
        n = len(said.gains) // len(self.left)
        for sentence, gains, tokens in zip(self.left, said.gains.split(n), said.tokens.split(n), strict=True):
            self.answers[sentence].append(Choices(gains.cpu(), tokens.cpu()))


class WatchedState(State):
    """Another state, with what happens to it written down."""

    def __init__(self, state: State, search: Search):
        self.state = state
        self.search = search

    def reorder(self, rows: Int[Tensor, " R"]) -> "WatchedState":
        return WatchedState(self.state.reorder(rows), self.search)

    def keep(self, sentences: Int[Tensor, " M"]) -> "WatchedState":
        self.search.left = [self.search.left[i] for i in sentences.tolist()]
        return WatchedState(self.state.keep(sentences), self.search)


class Watched(Seq2Seq):
    """Another model, asked just what the search asks: the search finds what it finds without a watcher."""

    def __init__(self, model: Seq2Seq):
        super().__init__()
        self.model = model
        self.limit = model.limit
        self.searches: list[Search] = []

    def plain(self) -> Seq2Seq:
        return self.model.plain()

    def features(self, batch: Batch) -> Float[Tensor, "B T D"]:
        return self.model.features(batch)

    def start(self, src: Source, n_hypotheses: int) -> WatchedState:
        B = len(src.lengths)
        self.searches.append(Search(list(range(B)), [[] for _ in range(B)]))
        return WatchedState(self.model.start(src, n_hypotheses), self.searches[-1])

    def step(self, tokens: Int[Tensor, " R"], state: State) -> tuple[Float[Tensor, "R V"], WatchedState]:
        assert isinstance(state, WatchedState), f"a watched model continues its own states, got {type(state)}"
        logits, after = self.model.step(tokens, state.state)
        return logits, WatchedState(after, state.search)

    def choices(
        self, tokens: Int[Tensor, " R"], state: State, must: Int[Tensor, " R"] | None, k: int
    ) -> tuple[Choices, WatchedState]:
        assert isinstance(state, WatchedState), f"a watched model continues its own states, got {type(state)}"
        said, after = self.model.choices(tokens, state.state, must, k)
        state.search.hear(said)
        return said, WatchedState(after, state.search)


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
    plain: Any = dequantize_linears(private_copy(model.plain()))
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
        ("decoder", model.tgt, batch.tgt.inputs, batch.tgt.positions),
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
    parts = first_parts(model.tgt, *first, batch.tgt.inputs, batch.tgt.positions)
    return logits, [replace(looks[0], parts=parts), *looks[1:]]


def _read_recurrent(model: Any, batch: Batch, tape: Tape) -> tuple[Tensor, list[RecordedLook]]:
    """Reads token by token, as the model decodes; its kernels for whole sentences build no queries to look at."""
    tape.listen(model.attention, "cross", 0)
    state, logits = model.start(batch.src, 1), []
    for token in batch.tgt.inputs[0]:
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
