"""The batches that all systems learn from: random pieces in sentences with the lengths of real ones."""

from collections import Counter
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from regard.batch import Batch, BatchShape, Rows, pack
from regard.padding import BOS, EOS, PAD
from regard.train.batching import PackedBatch, StepBatches, make_batches

from .work import FIRST_PIECE

N_BATCHES = 64  # in an epoch, about


def make_groups(lengths: NDArray[np.int64], budget: int, vocab_size: int, fixed: bool) -> list[StepBatches]:
    """Plans an epoch as the trainer does, one batch a step; shapes are fixed as for a GPU, or tight."""
    rng = np.random.default_rng(0)
    n_pairs = int(N_BATCHES * budget / (lengths.max(axis=1) + 1).mean())
    drawn = lengths[rng.integers(len(lengths), size=n_pairs)]
    plan = make_batches(drawn, budget, seed=0, epoch=0)
    groups = []
    for at, (pairs, n_tokens, shape) in enumerate(zip(plan.batches, plan.n_tokens, plan.shapes, strict=True)):
        room = shape if fixed else BatchShape(len(pairs), *(drawn[pairs].max(axis=0) + 1).tolist())
        groups.append(StepBatches([_packed(drawn[pairs], room, vocab_size, rng)], n_tokens, 0, at + 1, int(pairs[0])))
    return groups


def commonest(groups: list[StepBatches], n_shapes: int, n: int) -> list[StepBatches]:
    """Takes batches of the shapes that come most often, in the epoch's order."""
    counts = Counter(group.parts[0].shape for group in groups)
    chosen = {shape for shape, _ in counts.most_common(n_shapes)}
    return [group for group in groups if group.parts[0].shape in chosen][:n]


def spread(groups: list[StepBatches], n: int) -> list[StepBatches]:
    """Takes batches of short to long sentences."""
    by_length = sorted(groups, key=lambda group: group.parts[0].shape.tgt)
    return [by_length[place] for place in np.linspace(0, len(groups) - 1, 2 * n + 1).astype(int)[1::2]]


def pinned(groups: list[StepBatches]) -> list[StepBatches]:
    """Moves ids to where a GPU copies them from while the program goes on, as the trainer's feed does."""
    return [
        replace(group, parts=[replace(part, ids=part.ids.pin_memory()) for part in group.parts]) for group in groups
    ]


def slots(group: StepBatches) -> int:
    """Counts the places for target tokens, padding included."""
    return group.parts[0].shape.rows * group.parts[0].shape.tgt


def real_lengths(batch: Batch) -> list[tuple[int, int]]:
    """Gives the lengths of source and target, the end of the sentence included, of the rows that say something."""
    both = torch.stack([batch.src.lengths, batch.tgt.token_mask.sum(dim=1)], dim=1).tolist()
    return [(src, tgt) for src, tgt in both if tgt > 0]


def _packed(lengths: NDArray[np.int64], shape: BatchShape, vocab_size: int, rng: np.random.Generator) -> PackedBatch:
    src = _rows(lengths[:, 0] + 1, shape.src, vocab_size, rng)
    tgt = _rows(lengths[:, 1] + 2, shape.tgt + 1, vocab_size, rng)
    tgt[0][:, 0] = BOS
    full = len(lengths) == shape.rows and int(src[1].min()) == shape.src
    return PackedBatch(pack(src, tgt, shape), shape, full)


def _rows(ends: NDArray[np.int64], width: int, vocab_size: int, rng: np.random.Generator) -> Rows:
    ids = rng.integers(FIRST_PIECE, vocab_size, size=(len(ends), width))
    places = np.arange(width)
    ids[places == ends[:, None] - 1] = EOS
    ids[places >= ends[:, None]] = PAD
    return ids, ends
