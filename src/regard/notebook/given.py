"""Weights in the form that BertViz takes become a trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.serve.spelling import spelled
from regard.trace.given import GivenLook
from regard.trace.interop import Attentions
from regard.trace.look import KINDS
from regard.trace.made import make_given
from regard.trace.run import Traced
from regard.trace.trace import Step, Trace
from regard.trace.words import MARK

Layers = Sequence[Any] | Tensor  # tensors or arrays, one for each layer; or all in one
SLACK = 1e-3  # weights in bfloat16 may be so much too large
OTHERS = ("encoder_attention", "decoder_attention", "cross_attention", "encoder_tokens", "decoder_tokens")


@dataclass(frozen=True, eq=False)
class Given:
    """The arguments that `head_view` and `model_view` share, by BertViz's names.

    Layers are tensors of shape (1, heads, queries, keys), or without the 1.
    """

    attention: Any  # a trace or its `to_hf()`; else the layers of one stack, and `tokens` its tokens
    tokens: Sequence[str] | None
    encoder_attention: Layers | None
    decoder_attention: Layers | None
    cross_attention: Layers | None
    encoder_tokens: Sequence[str] | None
    decoder_tokens: Sequence[str] | None
    include_layers: Sequence[int] | None
    prettify_tokens: bool


def trace_of(given: Given) -> tuple[Trace, str]:
    """Gives a trace, and whether its rows are best shown by word or by piece."""
    found = given.attention.trace if isinstance(given.attention, Traced) else given.attention
    if found is not None:
        _refuse(given, OTHERS)
    if isinstance(found, Trace):
        _refuse(given, ("tokens", "include_layers"))
        return found, "word"
    if isinstance(found, Attentions):
        return _made(_unpacked(given, found))
    return _made(given if found is None else _one_stack(given))


def _refuse(given: Given, names: Sequence[str]) -> None:
    """Refuses arguments beside `attention` that would say the same again."""
    for name in names:
        if (value := getattr(given, name)) is not None:
            beside = type(given.attention).__name__
            raise ValueError(f"{name} must not stand beside an attention of {beside}, got {value!r:.60}")


def _unpacked(given: Given, found: Attentions) -> Given:
    _refuse(given, ("tokens",))
    stacks = {f"{kind}_attention": getattr(found, f"{kind}_attentions") or None for kind in KINDS}
    return replace(given, encoder_tokens=found.encoder_tokens, decoder_tokens=found.decoder_tokens, **stacks)


def _one_stack(given: Given) -> Given:
    """Takes tokens that look at themselves for a decoder's where none looks ahead."""
    layers = _layers("attention", given.attention, given.include_layers)
    ahead = any(float(layer.triu(1).sum()) > 0 for layer in layers)
    if ahead or layers[0].shape[1] == 1:
        return replace(given, encoder_attention=layers, encoder_tokens=_named("tokens", given.tokens, "attention"))
    return replace(given, decoder_attention=layers, decoder_tokens=_named("tokens", given.tokens, "attention"))


def _made(given: Given) -> tuple[Trace, str]:
    looks: list[GivenLook] = []
    for kind, sides in {"encoder": ("encoder",), "decoder": ("decoder",), "cross": ("encoder", "decoder")}.items():
        stack = getattr(given, f"{kind}_attention")
        if stack is not None:
            layers = _layers(f"{kind}_attention", stack, given.include_layers)
            looks += [GivenLook(kind, number, weights) for number, weights in enumerate(layers)]
            for side in sides:
                _named(f"{side}_tokens", getattr(given, f"{side}_tokens"), f"{kind}_attention")
    if not looks:
        raise ValueError("there must be attention, encoder_attention, decoder_attention or cross_attention, got none")
    (source, read), unit = _marked([given.encoder_tokens or (), given.decoder_tokens or ()], given.prettify_tokens)
    steps = [Step(piece, torch.nan, torch.nan, ()) for piece in read]  # rows bear the names that they were given
    return make_given(tuple(looks), source, read, steps, spelled(source) or spelled(read) or "…", spelled(read)), unit


def _layers(name: str, layers: Any, include: Sequence[int] | None) -> list[Float[Tensor, "H Q K"]]:
    """Gives the weights of each layer, or says what is wrong with which."""
    found = [_layer(f"{name}[{number}]", layer) for number, layer in enumerate(layers)]
    if not found or len({layer.shape for layer in found}) > 1:
        shapes = [tuple(layer.shape) for layer in found]
        raise ValueError(f"{name} must have layers, all of one shape (heads, queries, keys), got {shapes}")
    if include is None:
        return found
    if list(include) != list(range(len(include))) or not 0 < len(include) <= len(found):
        raise ValueError(
            f"include_layers must be the first of the {len(found)} layers, 0, 1, …, so that layers keep their numbers, "
            f"got {list(include)}: leave it out, as all of them are light here"
        )
    return found[: len(include)]


def _layer(name: str, layer: Any) -> Float[Tensor, "H Q K"]:
    shape = tuple(getattr(layer, "shape", ())) or type(layer).__name__
    weights = torch.as_tensor(layer).detach().float().cpu() if isinstance(shape, tuple) else None
    if weights is not None and weights.dim() == 4 and len(weights) == 1:
        weights = weights[0]
    if weights is None or weights.dim() != 3 or 0 in weights.shape:
        raise ValueError(f"{name} must have the shape (1, heads, queries, keys), one sentence, got {shape}")
    wrong = weights[~((weights >= -SLACK) & (weights <= 1 + SLACK))]
    if len(wrong):
        raise ValueError(f"{name} must hold weights from 0 to 1, got {wrong[0]:.4g}: a softmax makes them of scores")
    return weights


def _named(name: str, tokens: Sequence[str] | None, beside: str) -> Sequence[str]:
    if tokens is None:
        raise ValueError(f"{name} must be given beside {beside}, one for each row or column, got None")
    return tokens


def _marked(sides: Sequence[Sequence[str]], prettify: bool) -> tuple[list[list[str]], str]:
    """Writes the marks of other tokenizers as ours; where there are none, each token is a word."""
    if not prettify:
        return [list(tokens) for tokens in sides], "piece"
    plain = [[token.replace("Ġ", MARK).replace("</w>", "") for token in tokens] for tokens in sides]
    if any(MARK in token for tokens in plain for token in tokens):
        return plain, "piece"
    return [[MARK + (token or "␣") for token in tokens] for tokens in plain], "word"
