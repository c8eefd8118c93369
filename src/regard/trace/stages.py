"""One sentence through one encoder layer, every intermediate number kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.batch import make_source
from regard.model import MultiHeadAttention, Seq2Seq, Transformer
from regard.model.heads import merge_heads, split_heads
from regard.model.packed import restore_linears
from regard.model.residual import Residual
from regard.position import POSITION, Position
from regard.trace.private import private_copy
from regard.trace.terms import share


@dataclass(frozen=True, eq=False)
class Stage:
    """What stands there after one step of the computation, a row for each token."""

    name: str
    values: Float[Tensor, "T W"]


@dataclass(frozen=True, eq=False)
class Stages:
    """All steps of one layer, in order; `error` compares the end with what the layer itself puts out."""

    layer: int
    head: int
    n_layers: int
    n_heads: int
    norm_first: bool
    scheme: str
    stages: tuple[Stage, ...]
    error: float

    def __getitem__(self, name: str) -> Float[Tensor, "T W"]:
        """Gives the numbers of a step."""
        return next(stage.values for stage in self.stages if stage.name == name)


@torch.no_grad()
def encoder_stages(model: Seq2Seq, ids: Sequence[int], layer: int, head: int) -> Stages:
    """Goes through an encoder layer step by step, for the pieces of one sentence."""
    plain: Any = restore_linears(private_copy(model.plain()))
    if type(plain) is not Transformer:
        raise ValueError(f"only a Transformer has encoder layers to go through, got {type(plain).__name__}")
    layers: Any = plain.encoder.layers
    _check(layer, len(layers), "layer")
    _check(head, layers[layer].attention.n_heads, "head")
    src = make_source([list(ids)]).to(next(plain.parameters()).device)
    real = torch.ones_like(src.ids, dtype=torch.bool)
    begun, x = _embedded(plain.src, src.ids, src.positions)
    for before in layers[:layer]:
        x = before(x, src.positions, src.mask, real)
    here = layers[layer]
    attended = _attention(here.attention, here.after_attention, x, src.positions, head)
    fed = _feed_forward(here.feed_forward, here.after_feed_forward, attended["attention_out"])
    error = share(fed["output"] - here(x, src.positions, src.mask, real), fed["output"])
    named = {**begun, "input": x, **attended, **fed}
    kept = tuple(Stage(name, values[0].to("cpu", torch.float32)) for name, values in named.items())
    about = (
        len(layers),
        here.attention.n_heads,
        here.after_attention.norm_first,
        _scheme(plain.src.position, here.attention.position),
    )
    return Stages(layer, head, *about, kept, error)


def _embedded(
    words: Any, ids: Int[Tensor, "1 T"], positions: Int[Tensor, "1 T"]
) -> tuple[dict[str, Tensor], Float[Tensor, "1 T D"]]:
    """Gives what tokens and what positions bring to the stream, and their sum; set side by side, each has its zeros."""
    vectors = words.table(ids) * words.table.embedding_dim**0.5
    x, codes = (words.position.embed(each, positions) for each in (vectors, torch.zeros_like(vectors)))
    return {"token": x - codes, "position": codes}, x


def _attention(
    heads: MultiHeadAttention, residual: Residual, x: Float[Tensor, "1 T D"], positions: Int[Tensor, "1 T"], head: int
) -> dict[str, Tensor]:
    h = residual.norm(x) if residual.norm_first else x
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
        "attention_out": summed if residual.norm_first else residual.norm(summed),
    }


def _feed_forward(feed: Any, residual: Residual, x: Float[Tensor, "1 T D"]) -> dict[str, Tensor]:
    h = residual.norm(x) if residual.norm_first else x
    inner = feed.activation(feed.inner(h))
    outer = feed.outer(inner)
    summed = x + outer
    out = summed if residual.norm_first else residual.norm(summed)
    return {"feed_forward_in": h, "inner": inner, "outer": outer, "feed_forward_sum": summed, "output": out}


def _scheme(*positions: Position) -> str:
    """Names the scheme by its place in the table: that of the tokens, or of the heads where tokens have none."""
    names = {made: name for name, made in POSITION.items()}
    found = [names.get(type(each), type(each).__name__) for each in positions]
    return next((name for name in found if name != "none"), "none")


def _check(number: int, n: int, what: str) -> None:
    if not 0 <= number < n:
        raise ValueError(f"{what} must lie in 0 … {n - 1}, got {number}")
