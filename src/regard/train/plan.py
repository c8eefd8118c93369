"""Which pairs make up which batch: like lengths together, within a budget of tokens, in an order fixed by the seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.batch import Shape


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch: indices of pairs, the real target tokens of each batch, and a shape that it fits."""

    batches: list[NDArray[np.int64]]
    n_tokens: list[int]
    shapes: list[Shape]


def plan_epoch(lengths: NDArray[np.int64], budget: int, seed: int, epoch: int) -> Plan:
    """Sorts pairs by the width of their longer side, and cuts them into batches that fill the budget.

    `lengths` are the pieces of source and target, (n, 2). Widths are few, so that batches have few shapes: a batch has
    as many rows as fit its width, and what is left of one width is filled up with pairs of the next. Inside a width
    like sources stand together. Ties and batches are in random order.
    """
    if len(lengths) == 0:
        raise ValueError("there are no pairs to make batches of")
    rng = np.random.default_rng([seed, epoch])
    sizes = lengths.max(axis=1) + 1  # with the end of the sentence
    if int(sizes.max()) > budget:
        longest = int(sizes.max())
        raise ValueError(f"train.batch_tokens must hold the longest sentence, {longest} pieces, got {budget}")
    widths = np.minimum(round_up(sizes), budget)
    shuffled = rng.permutation(len(lengths))
    order = shuffled[np.lexsort((lengths[shuffled, 0], widths[shuffled]))]
    cut = _cut(order, widths[order], budget)
    cut = [cut[i] for i in rng.permutation(len(cut))]
    shapes = [_shape(lengths[batch], rows, budget) for batch, rows in cut]
    return Plan([batch for batch, _ in cut], [int((lengths[batch, 1] + 1).sum()) for batch, _ in cut], shapes)


def round_up(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives the width for each size: a multiple of 4 up to 32, then of an eighth of the next power of two."""
    step = 2 ** (np.ceil(np.log2(np.maximum(sizes, 32))).astype(np.int64) - 3)
    return -(-sizes // step) * step


def _cut(order: NDArray[np.int64], widths: NDArray[np.int64], budget: int) -> list[tuple[NDArray[np.int64], int]]:
    """Cuts pairs sorted by width, and gives each batch the rows that fit; all but the last of all have so many."""
    cut, rest, rows = [], order[:0], 0
    for width in np.unique(widths):
        rest = np.concatenate([rest, order[widths == width]])
        rows = budget // int(width)
        n = len(rest) // rows * rows
        cut.extend((batch, rows) for batch in np.split(rest[:n], range(rows, n, rows)) if n)
        rest = rest[n:]
    return [*cut, (rest, rows)] if len(rest) else cut


def _shape(lengths: NDArray[np.int64], rows: int, budget: int) -> Shape:
    src, tgt = np.minimum(round_up(lengths.max(axis=0) + 1), budget).tolist()
    return Shape(rows, src, tgt)


def share(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Gives one process's rows of a batch that all work on."""
    return batch[rank::world]
