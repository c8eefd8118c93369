"""A batch is read as it was translated, and each attention's weights are shown one after another."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from inspect import signature
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.batch import Batch
from regard.model import Recurrent, Seq2Seq, Transformer
from regard.trace.look import KINDS
from regard.trace.places import Place, find_places

See = Callable[[str, int, Float[Tensor, "B H Q K"]], None]  # told the kind, the layer and the weights
Show = Callable[[Float[Tensor, "B H Q K"]], None]


def show_weights(model: Seq2Seq, batch: Batch, see: See, kinds: Collection[str] = KINDS) -> None:
    """Reads a batch with a plain model that is somebody's own copy, and materialises one attention at a time."""
    places = [place for place in find_places(model) if place.kind in kinds]
    with torch.no_grad():
        SHOW[type(model)](model, batch, places, see)


def _show_transformer(model: Any, batch: Batch, places: list[Place], see: See) -> None:
    """Reads whole targets at once; each attention runs once."""
    with _heard([(place.attention, partial(see, place.kind, place.layer)) for place in places]):
        model.features(batch)


def _show_recurrent(model: Any, batch: Batch, places: list[Place], see: See) -> None:
    """Reads token by token; the kernels for whole sentences build no queries to look at."""
    rows: list[Tensor] = []
    (place,) = places
    with _heard([(place.attention, rows.append)]):
        state = model.start(batch.src, 1)
        for tokens in batch.tgt.read.unbind(1):
            _, state = model.step(tokens, state)
    see(place.kind, place.layer, torch.cat(rows, dim=2))


SHOW: dict[type, Callable[[Any, Batch, list[Place], See], None]] = {
    Transformer: _show_transformer,
    Recurrent: _show_recurrent,
}


@contextmanager
def _heard(listeners: list[tuple[Attention, Show]]) -> Iterator[None]:
    """Has each attention asked for its weights whenever it runs."""
    hooks = [attention.register_forward_hook(partial(_ask, show), with_kwargs=True) for attention, show in listeners]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _ask(show: Show, module: Attention, args: Any, kwargs: Any, out: Tensor) -> None:
    call = signature(module.forward).bind(*args, **kwargs)
    call.apply_defaults()
    show(module.weights(*(call.arguments[name] for name in ("q", "k", "mask", "bias"))))
