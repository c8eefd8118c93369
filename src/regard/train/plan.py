"""Which pairs make up which batch: like lengths together, within a budget of tokens, in an order fixed by the seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch: indices of pairs, and the real target tokens of each batch."""

    batches: list[NDArray[np.int64]]
    n_tokens: list[int]


def plan_epoch(lengths: NDArray[np.int64], budget: int, seed: int, epoch: int) -> Plan:
    """Sorts pairs by length, ties and batches in random order, and cuts where a batch would pass its budget.

    `lengths` are the pieces of source and target, (n, 2). A batch counts its rows times its longest side.
    """
    if len(lengths) == 0:
        raise ValueError("there are no pairs to make batches of")
    rng = np.random.default_rng([seed, epoch])
    sizes = lengths.max(axis=1) + 1  # with the end of the sentence
    if int(sizes.max()) > budget:
        longest = int(sizes.max())
        raise ValueError(f"train.batch_tokens must hold the longest sentence, {longest} pieces, got {budget}")
    shuffled = rng.permutation(len(lengths))
    order = shuffled[np.lexsort((lengths[shuffled, 0], sizes[shuffled]))]
    cuts = _cuts(sizes[order], budget)
    batches = np.split(order, cuts)
    batches = [batches[i] for i in rng.permutation(len(batches))]
    return Plan(batches, [int((lengths[batch, 1] + 1).sum()) for batch in batches])


def _cuts(sizes: NDArray[np.int64], budget: int) -> list[int]:
    cuts, start = [], 0
    while True:
        # Sizes only grow, so rows × size grows too: the first row that no longer fits is found by halving.
        near = sizes[start : start + budget // int(sizes[start])]
        n = int(np.searchsorted(np.arange(1, len(near) + 1) * near, budget, side="right"))
        start += max(n, 1)
        if start >= len(sizes):
            return cuts
        cuts.append(start)


def share(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Gives one process's rows of a batch that all work on."""
    return batch[rank::world]
