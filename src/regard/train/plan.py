"""Which pairs make up which batch: like lengths together, within a budget of tokens, in an order fixed by the seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.batch import Shape

N_WIDTHS = 16
EVEN = 8  # where there are many rows, their number is a multiple of this, which matrix products like


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch: indices of pairs, the real target tokens of each batch, and a shape that it fits."""

    batches: list[NDArray[np.int64]]
    n_tokens: list[int]
    shapes: list[Shape]


def plan_epoch(
    lengths: NDArray[np.int64], budget: int, seed: int, epoch: int, widths: NDArray[np.int64] | None = None
) -> Plan:
    """Sorts pairs by the width of their longer side, and cuts them into batches that fill the budget.

    `lengths` are the pieces of source and target, (n, 2). Widths are few, so that batches have few shapes: a batch has
    as many rows as fit its width, and what is left of one width is filled up with pairs of the next. Inside a width
    like sources stand together. Ties and batches are in random order. Without `widths` the best for these lengths are
    used.
    """
    if len(lengths) == 0:
        raise ValueError("there are no pairs to make batches of")
    rng = np.random.default_rng([seed, epoch])
    sizes = lengths.max(axis=1) + 1  # with the end of the sentence
    if int(sizes.max()) > budget:
        longest = int(sizes.max())
        raise ValueError(f"train.batch_tokens must hold the longest sentence, {longest} pieces, got {budget}")
    widths = choose_widths(sizes) if widths is None else widths
    wide = np.minimum(fitting(sizes, widths), budget)
    shuffled = rng.permutation(len(lengths))
    order = shuffled[np.lexsort((lengths[shuffled, 0], wide[shuffled]))]
    cut = _cut(order, wide[order], budget)
    cut = [cut[i] for i in rng.permutation(len(cut))]
    fits = np.minimum(fitting(lengths + 1, widths), budget)
    shapes = [Shape(rows, *fits[batch].max(axis=0).tolist()) for batch, rows in cut]
    return Plan([batch for batch, _ in cut], [int((lengths[batch, 1] + 1).sum()) for batch, _ in cut], shapes)


def choose_widths(sizes: NDArray[np.int64], n_widths: int = N_WIDTHS) -> NDArray[np.int64]:
    """Gives the few widths with which these sizes leave the fewest slots empty, smallest first.

    By dynamic programming over the last width of all sizes up to each one: Θ(n_widths · longest²) time.
    """
    up_to = np.cumsum(np.bincount(sizes))  # how many are not larger
    longest = len(up_to) - 1
    slots = np.where(np.arange(longest + 1) == 0, 0.0, np.inf)  # that cover all sizes up to each, with no width yet
    before = np.zeros((n_widths, longest + 1), dtype=np.int64)
    for k in range(n_widths):
        wider = slots.copy()
        for width in range(1, longest + 1):
            costs = slots[:width] + width * (up_to[width] - up_to[:width])
            before[k, width] = int(costs.argmin())
            wider[width] = min(costs[before[k, width]], slots[width])
            if wider[width] == slots[width]:
                before[k, width] = width  # one width more gains nothing
        slots = wider
    return _traced(before, longest)


def _traced(before: NDArray[np.int64], last: int) -> NDArray[np.int64]:
    """Follows the choices back from the longest size."""
    found = []
    for choice in before[::-1]:
        if choice[last] != last:
            found.append(last)
            last = int(choice[last])
    return np.array(found[::-1], dtype=np.int64)


def fitting(sizes: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives the smallest width that holds each size; one that none holds is rounded up to a multiple of an eighth."""
    place = np.searchsorted(widths, sizes)
    return np.where(place < len(widths), widths[np.minimum(place, len(widths) - 1)], round_up(sizes))


def round_up(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives a width for each size: a multiple of 4 up to 32, then of an eighth of the next power of two."""
    step = 2 ** (np.ceil(np.log2(np.maximum(sizes, 32))).astype(np.int64) - 3)
    return -(-sizes // step) * step


def _cut(order: NDArray[np.int64], widths: NDArray[np.int64], budget: int) -> list[tuple[NDArray[np.int64], int]]:
    """Cuts pairs sorted by width, and gives each batch the rows that fit; all but the last of all have so many."""
    cut, rest, rows = [], order[:0], 0
    for width in np.unique(widths):
        rest = np.concatenate([rest, order[widths == width]])
        rows = budget // int(width)
        rows -= rows % EVEN if rows > 32 * EVEN else 0
        n = len(rest) // rows * rows
        cut.extend((batch, rows) for batch in np.split(rest[:n], range(rows, n, rows)) if n)
        rest = rest[n:]
    return [*cut, (rest, rows)] if len(rest) else cut


def share(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Gives one process's rows of a batch that all work on."""
    return batch[rank::world]
