"""BertViz-compatible views."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import torch
from IPython import display
from torch import Tensor

from regard.config import choose
from regard.notebook.display import TraceDisplay, check_installed, lines_picture, make_page, maps_picture
from regard.serve.serialize import join_pieces
from regard.shapes import Float
from regard.trace.attention import GivenAttention
from regard.trace.attention_map import KINDS
from regard.trace.external import trace_from_attention
from regard.trace.run import TracedTranslation
from regard.trace.summary import MARK
from regard.trace.trace import Attentions, OutputToken, Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Layers = Sequence[Any] | Tensor  # tensors or arrays, one for each layer; or all in one
SLACK = 1e-3  # weights in bfloat16 may be so much too large
OTHERS = ("encoder_attention", "decoder_attention", "cross_attention", "encoder_tokens", "decoder_tokens")


@dataclass(frozen=True, eq=False)
class ViewArguments:
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
    decoder_inputs: Sequence[str] | None = None  # columns of the decoder's attention, unless its rows name them too


def to_trace(given: ViewArguments) -> tuple[Trace, str]:
    """Return a trace, and whether its rows are best shown by word or by piece."""
    found = given.attention.trace if isinstance(given.attention, TracedTranslation) else given.attention
    if found is not None:
        _refuse(given, OTHERS)
    if isinstance(found, Trace):
        _refuse(given, ("tokens", "include_layers"))
        return found, "word"
    if isinstance(found, Attentions):
        return _make_trace(_from_attentions(given, found))
    return _make_trace(given if found is None else _one_stack(given))


def _refuse(given: ViewArguments, names: Sequence[str]) -> None:
    """Reject arguments beside `attention` that would say the same again."""
    for name in names:
        if (value := getattr(given, name)) is not None:
            beside = type(given.attention).__name__
            raise ValueError(f"{name} must not stand beside an attention of {beside}, got {value!r:.60}")


def _from_attentions(given: ViewArguments, found: Attentions) -> ViewArguments:
    _refuse(given, ("tokens",))
    stacks = {f"{kind}_attention": getattr(found, f"{kind}_attentions") or None for kind in KINDS}
    tokens = {name: getattr(found, name) for name in ("encoder_tokens", "decoder_tokens", "decoder_inputs")}
    return replace(given, **tokens, **stacks)


def _one_stack(given: ViewArguments) -> ViewArguments:
    """Take self-attention for a decoder's where no token attends to a later one."""
    layers = _layers("attention", given.attention, given.include_layers)
    ahead = any(float(layer.triu(1).sum()) > 0 for layer in layers)
    if ahead or layers[0].shape[1] == 1:
        return replace(
            given, encoder_attention=layers, encoder_tokens=_require_tokens("tokens", given.tokens, "attention")
        )
    return replace(given, decoder_attention=layers, decoder_tokens=_require_tokens("tokens", given.tokens, "attention"))


def _make_trace(given: ViewArguments) -> tuple[Trace, str]:
    attention_maps: list[GivenAttention] = []
    for kind, sides in {"encoder": ("encoder",), "decoder": ("decoder",), "cross": ("encoder", "decoder")}.items():
        stack = getattr(given, f"{kind}_attention")
        if stack is not None:
            layers = _layers(f"{kind}_attention", stack, given.include_layers)
            attention_maps += [GivenAttention(kind, number, weights) for number, weights in enumerate(layers)]
            for side in sides:
                _require_tokens(f"{side}_tokens", getattr(given, f"{side}_tokens"), f"{kind}_attention")
    if not attention_maps:
        raise ValueError("there must be attention, encoder_attention, decoder_attention or cross_attention, got none")
    written = given.decoder_tokens or ()
    tokens = [given.encoder_tokens or (), written, given.decoder_inputs or written]
    (source, written, read), unit = _mark_words(tokens, given.prettify_tokens)
    # Rows have the names that they were given.
    steps = [OutputToken(token, torch.nan, torch.nan, ()) for token in written]
    text, output = join_pieces(source) or join_pieces(written) or "…", join_pieces(written)
    return trace_from_attention(tuple(attention_maps), source, read, steps, text, output), unit


def _layers(name: str, layers: Any, include: Sequence[int] | None) -> list[Float[Tensor, "H Q K"]]:
    """Return the weights of each layer, or say what is wrong with which."""
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


def _require_tokens(name: str, tokens: Sequence[str] | None, beside: str) -> Sequence[str]:
    if tokens is None:
        raise ValueError(f"{name} must be given beside {beside}, one for each row or column, got None")
    return tokens


def _mark_words(sides: Sequence[Sequence[str]], prettify: bool) -> tuple[list[list[str]], str]:
    """Write the marks of other tokenizers as ours; where there are none, each token is a word."""
    if not prettify:
        return [list(tokens) for tokens in sides], "piece"
    plain = [[token.replace("Ġ", MARK).replace("</w>", "") for token in tokens] for tokens in sides]
    if any(MARK in token for tokens in plain for token in tokens):
        return plain, "piece"
    return [[MARK + (token or "␣") for token in tokens] for tokens in plain], "word"


# The names are BertViz's, and so is their number.
def head_view(  # noqa: PLR0913
    attention: Any = None,
    tokens: Sequence[str] | None = None,
    *,
    prettify_tokens: bool = True,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    encoder_attention: Layers | None = None,
    decoder_attention: Layers | None = None,
    cross_attention: Layers | None = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    html_action: str = "view",
) -> Any:
    """Show lines between words, a colour for each head.

    `attention` is a trace, its `to_hf()`, or a list of tensors, one for each layer, as BertViz takes them; `layer` and
    `heads` are those shown at first. With `html_action="return"` one HTML page is given back instead, its text as
    `.data`, which opens without a server.
    """
    stacks = (encoder_attention, decoder_attention, cross_attention)
    sides = (encoder_tokens, decoder_tokens)
    trace, unit = to_trace(ViewArguments(attention, tokens, *stacks, *sides, include_layers, prettify_tokens))
    attention_map = trace.attention_map(_kind(trace), layer or 0)
    on = list(range(attention_map.n_heads)) if heads is None else list(heads)
    for head in on:
        attention_map.weights(head)  # says which heads there are
    off = ".".join(str(head) for head in range(attention_map.n_heads) if head not in on)
    address = {
        "view": "attention",
        "form": "lines",
        "kind": attention_map.kind,
        "layer": attention_map.layer,
        "off": off,
        "unit": unit,
    }
    return _act(
        trace, address, lambda: lines_picture(trace, attention_map.kind, attention_map.layer, on, unit), html_action
    )


def model_view(  # noqa: PLR0913
    attention: Any = None,
    tokens: Sequence[str] | None = None,
    *,
    prettify_tokens: bool = True,
    display_mode: str = "auto",
    encoder_attention: Layers | None = None,
    decoder_attention: Layers | None = None,
    cross_attention: Layers | None = None,
    encoder_tokens: Sequence[str] | None = None,
    decoder_tokens: Sequence[str] | None = None,
    include_layers: Sequence[int] | None = None,
    html_action: str = "view",
) -> Any:
    """Show all layers and heads as small maps; takes and return what `head_view` does.

    `display_mode` is light, dark, or as the reader's machine has it.
    """
    choose(dict.fromkeys(("auto", "light", "dark")), display_mode, "display_mode")
    stacks = (encoder_attention, decoder_attention, cross_attention)
    sides = (encoder_tokens, decoder_tokens)
    trace, unit = to_trace(ViewArguments(attention, tokens, *stacks, *sides, include_layers, prettify_tokens))
    address = {"view": "attention", "form": "all", "kind": _kind(trace), "unit": unit}
    if display_mode != "auto":
        address["theme"] = display_mode
    return _act(trace, address, lambda: maps_picture(trace, unit), html_action)


def _kind(trace: Trace) -> str:
    """Choose what is shown at first: what was read across, if anything was."""
    return "cross" if trace.cross else trace.attention[0].kind


def _act(trace: Trace, address: dict[str, Any], draw: "Callable[[], Figure]", action: str) -> Any:
    choose(dict.fromkeys(("view", "return")), action, "html_action")
    if action == "return":
        check_installed("pages", "IPython")
        return make_page(trace, urlencode(address))
    check_installed("views", "IPython")
    return display.display(TraceDisplay(trace, urlencode(address), draw))
