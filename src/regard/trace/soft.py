"""What the words of given pairs look at, by any of a model's heads."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from regard.batch import Batch, make_batch
from regard.decode.translator import length_sorted
from regard.model import Seq2Seq
from regard.trace.choice import ATS, Choice
from regard.trace.reading import Reading
from regard.trace.weighing import show_weights

BATCH_TOKENS = 4096  # of the longer side, with its padding


def soft_links(
    model: Seq2Seq, readings: Sequence[Reading], choices: Sequence[Choice]
) -> Iterator[tuple[int, Float[Tensor, "C t s"]]]:
    """Gives for each pair, longest first, how much each target joint looks at each source joint by each choice.

    Shares of a joint's pieces are added in the source and averaged in the target; the source's end is left out.
    """
    device = next(model.parameters()).device
    lengths = [max(len(each.src.ids), len(each.tgt.ids)) + 1 for each in readings]
    for places in length_sorted(lengths, BATCH_TOKENS):
        some = [readings[place] for place in places]
        batch = make_batch([each.src.ids for each in some], [each.tgt.ids for each in some]).to(device)
        merged = _merged(model, batch, some)
        chosen = torch.stack([_chosen(merged, choice) for choice in choices], dim=1)
        for place, reading, shares in zip(places, some, chosen, strict=True):
            yield place, shares[:, : max(reading.tgt.owners) + 1, : max(reading.src.owners) + 1]


def _merged(model: Seq2Seq, batch: Batch, some: Sequence[Reading]) -> Float[Tensor, "B L H 2 t s"]:
    """Gives all heads' weights between joints, for rows as what is said and as what is read."""
    columns = _sums([each.src.owners for each in some], batch.src.ids.shape[1]).transpose(1, 2)
    said = _sums([each.tgt.owners for each in some], batch.tgt.read.shape[1])
    said = said / said.sum(-1, keepdim=True).clamp(min=1.0)
    rows = torch.stack([said, said.roll(1, dims=-1)], dim=1)  # (B, 2, t, T): a token is read one row below
    rows, columns = rows[:, None].to(batch.tgt.read.device), columns[:, None, None].to(batch.tgt.read.device)
    layers: list[Tensor] = []

    def see(kind: str, layer: int, weights: Tensor) -> None:
        layers.append((rows @ weights.float()[:, :, None] @ columns).cpu())

    show_weights(model, batch, see, ("cross",))
    return torch.stack(layers, dim=1)


def _sums(owners: Sequence[Sequence[int]], width: int) -> Float[Tensor, "B t T"]:
    """Gives the matrices that add the pieces of each joint."""
    sums = torch.zeros(len(owners), max(max(each) for each in owners) + 1, width)
    for matrix, each in zip(sums, owners, strict=True):
        matrix[each, torch.arange(len(each))] = 1.0
    return sums


def _chosen(merged: Float[Tensor, "B L H 2 t s"], choice: Choice) -> Float[Tensor, "B t s"]:
    layers = merged if choice.layer is None else merged[:, choice.layer : choice.layer + 1]
    heads = layers if choice.head is None else layers[:, :, choice.head : choice.head + 1]
    return heads[:, :, :, ATS.index(choice.at)].mean((1, 2))
