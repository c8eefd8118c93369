"""The view by the names that users of BertViz know."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from regard.config import choose
from regard.notebook.given import Given, Layers, trace_of
from regard.notebook.needs import check_installed
from regard.notebook.shown import Shown
from regard.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    """Shows lines between words, a colour for each head.

    `attention` is a trace, its `to_hf()`, or a list of tensors, one for each layer, as BertViz takes them; `layer` and
    `heads` are those shown at first. With `html_action="return"` one HTML page is given back instead, its text as
    `.data`, which opens without a server.
    """
    stacks = (encoder_attention, decoder_attention, cross_attention)
    sides = (encoder_tokens, decoder_tokens)
    trace, unit = trace_of(Given(attention, tokens, *stacks, *sides, include_layers, prettify_tokens))
    look = trace.look(_kind(trace), layer or 0)
    on = list(range(look.n_heads)) if heads is None else list(heads)
    for head in on:
        look.weights(head)  # says which heads there are
    off = ".".join(str(head) for head in range(look.n_heads) if head not in on)
    address = {"view": "attention", "form": "lines", "kind": look.kind, "layer": look.layer, "off": off, "unit": unit}
    return _act(trace, address, lambda: _lines(trace, look.kind, look.layer, on, unit), html_action)


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
    """Shows all layers and heads as small maps; takes and gives what `head_view` does.

    `display_mode` is light, dark, or as the reader's machine has it.
    """
    choose(dict.fromkeys(("auto", "light", "dark")), display_mode, "display_mode")
    stacks = (encoder_attention, decoder_attention, cross_attention)
    sides = (encoder_tokens, decoder_tokens)
    trace, unit = trace_of(Given(attention, tokens, *stacks, *sides, include_layers, prettify_tokens))
    address = {"view": "attention", "form": "all", "kind": _kind(trace), "unit": unit}
    if display_mode != "auto":
        address["theme"] = display_mode
    return _act(trace, address, lambda: _maps(trace, unit), html_action)


def _kind(trace: Trace) -> str:
    """Chooses what is shown at first: what was read across, if anything was."""
    return "cross" if trace.cross else trace.looks[0].kind


def _act(trace: Trace, address: dict[str, Any], draw: "Callable[[], Figure]", action: str) -> Any:
    choose(dict.fromkeys(("view", "return")), action, "html_action")
    if action == "return":
        check_installed("pages", "IPython")
        from regard.notebook.page import make_page

        return make_page(trace, urlencode(address))
    check_installed("views", "IPython")
    from IPython.display import display

    return display(Shown(trace, urlencode(address), draw))


def _lines(trace: Trace, kind: str, layer: int, heads: Sequence[int], unit: str) -> "Figure":
    from regard.notebook.pictures import lines_picture  # which needs matplotlib

    return lines_picture(trace, kind, layer, heads, unit)


def _maps(trace: Trace, unit: str) -> "Figure":
    from regard.notebook.pictures import maps_picture

    return maps_picture(trace, unit)
