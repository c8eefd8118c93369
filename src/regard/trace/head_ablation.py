"""Find heads, switch them off, measure quality."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from regard.attention import Attention
from regard.batch import Batch
from regard.engine import select_engine
from regard.model import MultiHeadAttention, Recurrent, Seq2Seq, Transformer
from regard.model.quantize import dequantize_linears
from regard.pipeline.translator import Translator
from regard.score import score
from regard.search.scoring import token_costs
from regard.shapes import Float
from regard.trace.attention_map import KINDS
from regard.trace.replay import private_copy


@dataclass(frozen=True, eq=False)
class LayerHeads:
    """One attention of a model; `read_by` gives for each head the columns of the weights that its output meets."""

    kind: str
    layer: int
    attention: Attention
    read_by: list[list[Float[Tensor, "_ E"]]]

    @property
    def n_heads(self) -> int:
        """The number of heads."""
        return len(self.read_by)


def plain_copy(model: Seq2Seq) -> Seq2Seq:
    """Copy the plain model that a model decodes as, parameters too, so that nothing happens to the one that runs."""
    plain: Any = deepcopy(dequantize_linears(private_copy(model)))
    return plain.requires_grad_(False)


def find_heads(model: Seq2Seq) -> list[LayerHeads]:
    """List a plain model's attentions in the order in which data meets them."""
    find = FIND.get(type(model))
    if find is None:
        known = ", ".join(each.__name__ for each in FIND)
        raise ValueError(f"a model must be one of {known} to be looked into, got {type(model).__name__}")
    return find(model)


def _in_transformer(model: Any) -> list[LayerHeads]:
    encoder = [_heads("encoder", number, layer.attention) for number, layer in enumerate(model.encoder.layers)]
    decoder = [_heads("decoder", number, layer.attention) for number, layer in enumerate(model.decoder.layers)]
    cross = [_heads("cross", number, layer.cross_attention) for number, layer in enumerate(model.decoder.layers)]
    return encoder + decoder + cross


def _in_recurrent(model: Any) -> list[LayerHeads]:
    """The one head's output, the context, is read twice: by the decoder's first cell and by the last map."""
    cell = model.decoder.cells[0].weight_ih[:, model.decoder.d_word :]
    return [LayerHeads("cross", 0, model.attention, [[cell, model.mix.weight[:, model.decoder.width :]]])]


# By the very class: of another model's parts nobody knows which attention is which.
FIND: dict[type, Callable[[Any], list[LayerHeads]]] = {Transformer: _in_transformer, Recurrent: _in_recurrent}


def _heads(kind: str, layer: int, heads: MultiHeadAttention) -> LayerHeads:
    columns = heads.w_o.weight.unflatten(1, (heads.n_heads, -1)).unbind(1)  # views, so that they can be changed
    return LayerHeads(kind, layer, heads.attention, [[each] for each in columns])


OnWeights = Callable[[str, int, Float[Tensor, "B H Q K"]], None]  # told the kind, the layer and the weights
OnLayerWeights = Callable[[Float[Tensor, "B H Q K"]], None]


def attention_maps(model: Seq2Seq, batch: Batch, see: OnWeights, kinds: Collection[str] = KINDS) -> None:
    """Read a batch with a plain model that is somebody's own copy, and materialise one attention at a time."""
    places = [place for place in find_heads(model) if place.kind in kinds]
    with torch.no_grad():
        SHOW[type(model)](model, batch, places, see)


def _show_transformer(model: Any, batch: Batch, places: list[LayerHeads], see: OnWeights) -> None:
    """Read whole targets at once; each attention runs once."""
    with _hooked([(place.attention, partial(see, place.kind, place.layer)) for place in places]):
        model.features(batch)


def _show_recurrent(model: Any, batch: Batch, places: list[LayerHeads], see: OnWeights) -> None:
    """Read token by token; the kernels for whole sentences build no queries to look at."""
    rows: list[Tensor] = []
    (place,) = places
    with _hooked([(place.attention, rows.append)]):
        state = model.start(batch.src, 1)
        for tokens in batch.tgt.inputs.unbind(1):
            _, state = model.step(tokens, state)
    see(place.kind, place.layer, torch.cat(rows, dim=2))


SHOW: dict[type, Callable[[Any, Batch, list[LayerHeads], OnWeights], None]] = {
    Transformer: _show_transformer,
    Recurrent: _show_recurrent,
}


@contextmanager
def _hooked(listeners: list[tuple[Attention, OnLayerWeights]]) -> Iterator[None]:
    """Have each attention asked for its weights whenever it runs."""
    hooks = [
        attention.register_forward_hook(partial(_pass_weights, show), with_kwargs=True) for attention, show in listeners
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _pass_weights(show: OnLayerWeights, module: Attention, args: Any, kwargs: Any, out: Tensor) -> None:
    call = signature(module.forward).bind(*args, **kwargs)
    call.apply_defaults()
    show(module.weights(*(call.arguments[name] for name in ("q", "k", "mask", "bias"))))


@contextmanager
def zero_head(read_by: Sequence[Float[Tensor, "_ E"]]) -> Iterator[None]:
    """Set to zero, for a while, the columns of the weights that read a head's output, which is as if it were zero.

    The columns are views of a model's parameters, see `Place.read_by`; they are what they were in the end, whatever
    happens in between.
    """
    saved = [columns.detach().clone() for columns in read_by]
    with torch.no_grad():
        for columns in read_by:
            columns.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for columns, before in zip(read_by, saved, strict=True):
                columns.copy_(before)


@dataclass(frozen=True)
class Quality:
    """Mean −log p of a target token, and BLEU of greedy translations where they were asked for."""

    loss: float
    bleu: float | None


def measure_quality(
    model: Seq2Seq, batches: Sequence[Batch], translator: Translator, pairs: Sequence[tuple[str, str]]
) -> Quality:
    """Measure a plain model by the batches, and by translations of the pairs with the translator's words, if any."""
    total = sum(float(token_costs(model, batch).double().sum()) for batch in batches)
    loss = total / sum(batch.tgt.n_tokens for batch in batches)
    return Quality(loss, _bleu(model, translator, pairs) if pairs else None)


def _bleu(model: Seq2Seq, translator: Translator, pairs: Sequence[tuple[str, str]]) -> float:
    """Translate on the fast path: the model as it is now is packed for it."""
    greedy = replace(translator.settings, method="greedy", beam=1, n_best=1)
    languages = translator.src_lang, translator.tgt_lang
    quick = Translator(select_engine(model), translator.tokenizer, greedy, *languages, translator.max_len)
    outputs = [found.text for found in quick.translate([src for src, _ in pairs])]
    return score(outputs, [tgt for _, tgt in pairs], translator.tgt_lang).bleu


ProgressBar = Callable[
    [Iterable[Any], int, str], Iterable[Any]
]  # told the items of a task, their number and what is done


def no_progress(items: Iterable[Any], total: int, what: str) -> Iterable[Any]:
    """Show nothing."""
    return items
