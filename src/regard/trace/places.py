"""Where a model's heads are, and which columns of its maps read what each puts out."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.attention import Attention
from regard.model import MultiHeadAttention, Recurrent, Seq2Seq, Transformer
from regard.model.packed import restore_linears
from regard.trace.private import private_copy


@dataclass(frozen=True, eq=False)
class Place:
    """One attention of a model; `read_by` gives for each head the columns of the weights that its output meets."""

    kind: str
    layer: int
    attention: Attention
    read_by: list[list[Float[Tensor, "_ E"]]]

    @property
    def n_heads(self) -> int:
        """The number of heads."""
        return len(self.read_by)


def own_copy(model: Seq2Seq) -> Seq2Seq:
    """Copies the plain model that a model decodes as, parameters too, so that nothing happens to the one that runs."""
    plain: Any = deepcopy(restore_linears(private_copy(model.plain())))
    return plain.requires_grad_(False)


def find_places(model: Seq2Seq) -> list[Place]:
    """Lists a plain model's attentions in the order in which data meets them."""
    find = FIND.get(type(model))
    if find is None:
        known = ", ".join(each.__name__ for each in FIND)
        raise ValueError(f"a model must be one of {known} to be looked into, got {type(model).__name__}")
    return find(model)


def _in_transformer(model: Any) -> list[Place]:
    encoder = [_heads("encoder", number, layer.attention) for number, layer in enumerate(model.encoder.layers)]
    decoder = [_heads("decoder", number, layer.attention) for number, layer in enumerate(model.decoder.layers)]
    cross = [_heads("cross", number, layer.cross_attention) for number, layer in enumerate(model.decoder.layers)]
    return encoder + decoder + cross


def _in_recurrent(model: Any) -> list[Place]:
    """The one head's output, the context, is read twice: by the decoder's first cell and by the last map."""
    cell = model.decoder.cells[0].weight_ih[:, model.decoder.d_word :]
    return [Place("cross", 0, model.attention, [[cell, model.mix.weight[:, model.decoder.width :]]])]


# By the very class: of another model's parts nobody knows which attention is which.
FIND: dict[type, Callable[[Any], list[Place]]] = {Transformer: _in_transformer, Recurrent: _in_recurrent}


def _heads(kind: str, layer: int, heads: MultiHeadAttention) -> Place:
    columns = heads.w_o.weight.unflatten(1, (heads.n_heads, -1)).unbind(1)  # views, so that they can be changed
    return Place(kind, layer, heads.attention, [[each] for each in columns])
