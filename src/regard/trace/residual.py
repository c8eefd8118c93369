"""The residual stream; one layer step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from regard.batch import make_source
from regard.model import MultiHeadAttention, Seq2Seq, Transformer
from regard.model.multihead import merge_heads, split_heads
from regard.model.norm import Residual
from regard.model.quantize import dequantize_linears
from regard.padding import Ids
from regard.position import POSITION, Position
from regard.search.scoring import pair_batches
from regard.shapes import Float, Int
from regard.trace.decompose import relative_error
from regard.trace.head_ablation import ProgressBar, no_progress
from regard.trace.replay import private_copy, to_cpu
from regard.trace.trace import SUBLAYERS


@dataclass(frozen=True, eq=False)
class EncoderStage:
    """What stands there after one step of the computation, a row for each token."""

    name: str
    values: Float[Tensor, "T W"]


@dataclass(frozen=True, eq=False)
class EncoderStages:
    """All steps of one layer, in order; `error` compares the end with what the layer itself puts out."""

    layer: int
    head: int
    n_layers: int
    n_heads: int
    norm_first: bool
    scheme: str
    stages: tuple[EncoderStage, ...]
    error: float

    def __getitem__(self, name: str) -> Float[Tensor, "T W"]:
        """Return the numbers of a step."""
        return next(stage.values for stage in self.stages if stage.name == name)


@torch.no_grad()
def encoder_stages(model: Seq2Seq, ids: Sequence[int], layer: int, head: int) -> EncoderStages:
    """Run an encoder layer step by step on the tokens of one sentence."""
    plain: Any = dequantize_linears(private_copy(model))
    if type(plain) is not Transformer:
        raise ValueError(f"only a Transformer has encoder layers to go through, got {type(plain).__name__}")
    layers: Any = plain.encoder.layers
    _check(layer, len(layers), "layer")
    _check(head, layers[layer].attention.n_heads, "head")
    src = make_source([list(ids)]).to(next(plain.parameters()).device)
    begun, x = _embedded(plain.src, src.ids, src.positions)
    for before in layers[:layer]:
        x, _ = before(x, src.positions, src.mask, src.token_mask)
    here = layers[layer]
    attended = _attention(here.attention, here.after_attention, x, src.positions, head)
    fed = _feed_forward(here.feed_forward, here.after_feed_forward, attended["attention_out"])
    output, _ = here(x, src.positions, src.mask, src.token_mask)
    error = relative_error(fed["output"] - output, fed["output"])
    named = {**begun, "input": x, **attended, **fed}
    kept = tuple(EncoderStage(name, values[0].to("cpu", torch.float32)) for name, values in named.items())
    about = (
        len(layers),
        here.attention.n_heads,
        here.after_attention.norm_first,
        _scheme(plain.src.position, here.attention.position),
    )
    return EncoderStages(layer, head, *about, kept, error)


def _embedded(
    words: Any, ids: Int[Tensor, "1 T"], positions: Int[Tensor, "1 T"]
) -> tuple[dict[str, Tensor], Float[Tensor, "1 T D"]]:
    """Return what tokens and what positions bring to the stream, and their sum; side by side, each has its zeros."""
    vectors = words.words(ids)
    x, codes = (words.position.embed(each, positions) for each in (vectors, torch.zeros_like(vectors)))
    return {"token": x - codes, "position": codes}, x if words.norm is None else words.norm(x)


def _attention(
    heads: MultiHeadAttention, residual: Residual, x: Float[Tensor, "1 T D"], positions: Int[Tensor, "1 T"], head: int
) -> dict[str, Tensor]:
    h = residual.before(x, None)
    q, k, v = (split_heads(w(h), heads.n_heads) for w in (heads.w_q, heads.w_k, heads.w_v))
    q, k = heads.position.rotate(q, positions), heads.position.rotate(k, positions)
    bias = heads.position.bias(q, k, positions, positions)
    scores = heads.attention.scores(q, k)
    weights = heads.attention.weights(q, k, bias=bias)
    mixed = weights @ v
    extra = heads.position.pool(lambda: weights, positions, positions)
    mixed = mixed if extra is None else mixed + extra
    projected = heads.w_o(merge_heads(mixed))
    summed = x + projected
    of_head = {"query": q, "key": k, "value": v, "scores": scores if bias is None else scores + bias}
    return {
        "normed": h,
        **{name: values[:, head] for name, values in {**of_head, "weights": weights, "mixed": mixed}.items()},
        "projected": projected,
        "attention_sum": summed,
        "attention_out": residual(x, projected, None),
    }


def _feed_forward(feed: Any, residual: Residual, x: Float[Tensor, "1 T D"]) -> dict[str, Tensor]:
    h = residual.before(x, None)
    inner = feed.activation(feed.inner(h))
    outer = feed.outer(inner)
    summed = x + outer
    out = residual(x, outer, None)
    return {"feed_forward_in": h, "inner": inner, "outer": outer, "feed_forward_sum": summed, "output": out}


def _scheme(*positions: Position) -> str:
    """Name the scheme by its place in the table: that of the tokens, or of the heads where tokens have none."""
    names = {made: name for name, made in POSITION.items()}
    found = [names.get(type(each), type(each).__name__) for each in positions]
    return next((name for name in found if name != "none"), "none")


def _check(number: int, n: int, what: str) -> None:
    if not 0 <= number < n:
        raise ValueError(f"{what} must lie in 0 … {n - 1}, got {number}")


@dataclass(frozen=True, eq=False)
class Tokens:
    """Whose vectors a stream holds: for each its piece, where it stands, and the number of its sentence."""

    ids: Int[Tensor, " N"]
    positions: Int[Tensor, " N"]
    sentences: Int[Tensor, " N"]


@dataclass(frozen=True, eq=False)
class Stream:
    """One stack's stream over a text, a row for each token; sub-layers are named by layer and kind."""

    stack: str
    tokens: Tokens
    before: dict[tuple[int, str], Float[Tensor, "N D"]]
    updates: dict[tuple[int, str], Float[Tensor, "N D"]]
    last: Float[Tensor, "N D"]  # what leaves the last layer, before a last norm

    def points(self) -> dict[str, Float[Tensor, "N D"]]:
        """Return the stream where it begins, and after each layer."""
        starts = [x for (_, sublayer), x in self.before.items() if sublayer == "attention"]
        return dict(zip(["embedding", *(f"layer {n}" for n in range(len(starts)))], [*starts, self.last], strict=True))


@dataclass(eq=False)
class _StreamRecorder:
    """Writes down the vectors around one sub-layer, padding left out."""

    is_last: bool  # of its stack
    before: list[Tensor] = field(default_factory=list)
    updates: list[Tensor] = field(default_factory=list)
    after: list[Tensor] = field(default_factory=list)

    def hear(self, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        x, update, token_mask = args
        self.before.append(to_cpu(x[token_mask]))
        self.updates.append(to_cpu(update[token_mask]))
        if self.is_last:
            self.after.append(to_cpu(out[token_mask]))


def plain_transformer(model: Seq2Seq) -> Any:
    """Return a copy of the plain Transformer that a model decodes as, its parameters shared, to be listened to."""
    plain: Any = dequantize_linears(private_copy(model))
    if type(plain) is not Transformer:
        raise ValueError(f"only a Transformer has a residual stream to look at, got {type(plain).__name__}")
    return plain


@torch.no_grad()
def record_streams(
    model: Seq2Seq, src: Sequence[Ids], tgt: Sequence[Ids], bar: ProgressBar = no_progress
) -> dict[str, Stream]:
    """Read pairs under teacher forcing, and return the streams of encoder and decoder; the model is not touched."""
    plain = plain_transformer(model)
    heard = {stack: _record_stack(getattr(plain, stack).layers, stack) for stack in SUBLAYERS}
    tokens: dict[str, list[Tokens]] = {stack: [] for stack in SUBLAYERS}
    batches = list(pair_batches(src, tgt))
    for places, batch in bar(batches, len(batches), "reading"):
        plain.features(batch.to(next(plain.parameters()).device))
        numbers = torch.tensor(places)
        tokens["encoder"].append(_tokens(batch.src.ids, batch.src.positions, batch.src.token_mask, numbers))
        tokens["decoder"].append(_tokens(batch.tgt.inputs, batch.tgt.positions, batch.tgt.token_mask, numbers))
    return {stack: _join(stack, heard[stack], tokens[stack]) for stack in SUBLAYERS}


def _record_stack(layers: Any, stack: str) -> dict[tuple[int, str], _StreamRecorder]:
    listeners = {}
    for number, layer in enumerate(layers):
        for sublayer in SUBLAYERS[stack]:
            is_last = number == len(layers) - 1 and sublayer == SUBLAYERS[stack][-1]
            listeners[number, sublayer] = listener = _StreamRecorder(is_last)
            getattr(layer, f"after_{sublayer}").register_forward_hook(listener.hear)
    return listeners


def _tokens(ids: Tensor, positions: Tensor, real: Tensor, numbers: Tensor) -> Tokens:
    return Tokens(ids[real], positions.expand_as(ids)[real], numbers[:, None].expand_as(ids)[real])


def _join(stack: str, heard: dict[tuple[int, str], _StreamRecorder], tokens: list[Tokens]) -> Stream:
    ids, positions, sentences = (torch.cat([getattr(t, name) for t in tokens]) for name in Tokens.__dataclass_fields__)
    before = {place: torch.cat(each.before) for place, each in heard.items()}
    updates = {place: torch.cat(each.updates) for place, each in heard.items()}
    (last,) = (torch.cat(each.after) for each in heard.values() if each.after)
    return Stream(stack, Tokens(ids, positions, sentences), before, updates, last)
