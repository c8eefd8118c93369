"""The residual stream itself: the vectors of all tokens before each sub-layer, and what each writes into them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.batch import Ids
from regard.model import Seq2Seq, Transformer
from regard.model.packed import restore_linears
from regard.trace.bar import Bar, no_bar
from regard.trace.costs import pair_batches
from regard.trace.private import private_copy
from regard.trace.tape import kept

SUBLAYERS = {"encoder": ("attention", "feed_forward"), "decoder": ("attention", "cross_attention", "feed_forward")}


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
        """Gives the stream where it begins, and after each layer."""
        starts = [x for (_, sublayer), x in self.before.items() if sublayer == "attention"]
        return dict(zip(["embedding", *(f"layer {n}" for n in range(len(starts)))], [*starts, self.last], strict=True))


@dataclass(eq=False)
class _Listener:
    """Writes down the vectors around one sub-layer, padding left out."""

    before: list[Tensor] = field(default_factory=list)
    updates: list[Tensor] = field(default_factory=list)
    after: list[Tensor] = field(default_factory=list)

    def hear(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x, sublayer, real = args
        self.before.append(kept(x[real]))
        return x, partial(self._run, sublayer, real), real

    def _run(self, sublayer: Callable[[Tensor], Tensor], real: Tensor, h: Tensor) -> Tensor:
        out = sublayer(h)
        self.updates.append(kept(out[real]))
        return out

    def hear_end(self, module: nn.Module, args: tuple[Any, ...], out: Tensor) -> None:
        self.after.append(kept(out[args[2]]))


def looked_into(model: Seq2Seq) -> Any:
    """Gives a copy of the plain Transformer that a model decodes as, its parameters shared, to be listened to."""
    plain: Any = restore_linears(private_copy(model.plain()))
    if type(plain) is not Transformer:
        raise ValueError(f"only a Transformer has a residual stream to look at, got {type(plain).__name__}")
    return plain


@torch.no_grad()
def record_streams(model: Seq2Seq, src: Sequence[Ids], tgt: Sequence[Ids], bar: Bar = no_bar) -> dict[str, Stream]:
    """Reads pairs under teacher forcing, and gives the streams of encoder and decoder; the model is not touched."""
    plain = looked_into(model)
    heard = {stack: _listen(getattr(plain, stack).layers, stack) for stack in SUBLAYERS}
    tokens: dict[str, list[Tokens]] = {stack: [] for stack in SUBLAYERS}
    batches = list(pair_batches(src, tgt))
    for places, batch in bar(batches, len(batches), "reading"):
        plain.features(batch.to(next(plain.parameters()).device))
        numbers = torch.tensor(places)
        in_src = torch.arange(batch.src.ids.shape[1]) < batch.src.lengths[:, None]
        tokens["encoder"].append(_tokens(batch.src.ids, batch.src.positions, in_src, numbers))
        tokens["decoder"].append(_tokens(batch.tgt.read, batch.tgt.positions, batch.tgt.real, numbers))
    return {stack: _joined(stack, heard[stack], tokens[stack]) for stack in SUBLAYERS}


def _listen(layers: Any, stack: str) -> dict[tuple[int, str], _Listener]:
    listeners = {}
    for number, layer in enumerate(layers):
        for sublayer in SUBLAYERS[stack]:
            residual = getattr(layer, f"after_{sublayer}")
            listeners[number, sublayer] = listener = _Listener()
            residual.register_forward_pre_hook(listener.hear)
            if number == len(layers) - 1 and sublayer == SUBLAYERS[stack][-1]:
                residual.register_forward_hook(listener.hear_end)
    return listeners


def _tokens(ids: Tensor, positions: Tensor, real: Tensor, numbers: Tensor) -> Tokens:
    return Tokens(ids[real], positions.expand_as(ids)[real], numbers[:, None].expand_as(ids)[real])


def _joined(stack: str, heard: dict[tuple[int, str], _Listener], tokens: list[Tokens]) -> Stream:
    ids, positions, sentences = (torch.cat([getattr(t, name) for t in tokens]) for name in Tokens.__dataclass_fields__)
    before = {place: torch.cat(each.before) for place, each in heard.items()}
    updates = {place: torch.cat(each.updates) for place, each in heard.items()}
    (last,) = (torch.cat(each.after) for each in heard.values() if each.after)
    return Stream(stack, Tokens(ids, positions, sentences), before, updates, last)
