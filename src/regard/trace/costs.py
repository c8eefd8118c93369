"""What given targets cost a model: −log p of each token, the tokens before it given."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.batch import Batch, Ids, make_batch
from regard.decode.translator import length_sorted
from regard.model import Seq2Seq

BATCH_TOKENS = 2048  # of the longer side, with its padding: a table of logits has so many rows


def pair_batches(src: Sequence[Ids], tgt: Sequence[Ids]) -> Iterator[tuple[list[int], Batch]]:
    """Sets pairs of like lengths together, longest first; gives their places, and the batch.

    What is set together does not depend on the order in which pairs come.
    """
    order = sorted(range(len(src)), key=lambda place: (list(src[place]), list(tgt[place])))
    for some in length_sorted([max(len(src[place]), len(tgt[place])) + 1 for place in order], BATCH_TOKENS):
        places = [order[each] for each in some]
        yield places, make_batch([src[place] for place in places], [tgt[place] for place in places])


@torch.no_grad()
def token_costs(model: Seq2Seq, batch: Batch) -> Float[Tensor, "B T"]:
    """Gives −log p of what should be said, EOS included; padding costs nothing and is never scored."""
    batch = batch.to(next(model.parameters()).device)
    logits = model.output(model.features(batch)[batch.tgt.real])
    kind = torch.promote_types(logits.dtype, torch.float32)
    costs = F.cross_entropy(logits.to(kind), batch.tgt.say[batch.tgt.real], reduction="none")
    return (
        torch.zeros(batch.tgt.real.shape, dtype=kind, device=costs.device).masked_scatter(batch.tgt.real, costs).cpu()
    )
