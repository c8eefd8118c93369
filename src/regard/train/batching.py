"""Batches of like length, and their prefetching."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import Batch, BatchShape, pack, unpack
from regard.config import Settings
from regard.data.store import IdStore, Windows
from regard.padding import BOS, EOS
from regard.shapes import Int
from regard.train.distributed import World

N_WIDTHS = 16
EVEN = 8  # many rows are rounded down to a multiple of this, for matrix products


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch: indices of pairs, the target tokens of each batch, and a shape that holds it."""

    batches: list[NDArray[np.int64]]
    n_tokens: list[int]
    shapes: list[BatchShape]


def make_batches(
    lengths: NDArray[np.int64], budget: int, seed: int, epoch: int, widths: NDArray[np.int64] | None = None
) -> EpochPlan:
    """Sort pairs by the width of their longer side, and cut them into batches that fill the budget.

    `lengths` are the tokens of source and target, (n, 2). Widths are few, so that batches have few shapes: a batch has
    as many rows as fit its width, and the last batch of a width is filled up with pairs of the next. Within a width
    pairs are sorted by source length. Ties and batches are in random order. Without `widths` the best for these lengths
    are used.
    """
    if len(lengths) == 0:
        raise ValueError("batches need 1 or more pairs, got 0")
    rng = np.random.default_rng([seed, epoch])
    sizes = lengths.max(axis=1) + 1  # with EOS
    if int(sizes.max()) > budget:
        longest = int(sizes.max())
        raise ValueError(f"train.batch_tokens must hold the longest sentence, {longest} tokens, got {budget}")
    widths = choose_widths(sizes) if widths is None else widths
    wide = np.minimum(round_to_widths(sizes, widths), budget)
    shuffled = rng.permutation(len(lengths))
    order = shuffled[np.lexsort((lengths[shuffled, 0], wide[shuffled]))]
    cut = _cut(order, wide[order], budget)
    cut = [cut[i] for i in rng.permutation(len(cut))]
    fits = np.minimum(round_to_widths(lengths + 1, widths), budget)
    shapes = [BatchShape(rows, *fits[batch].max(axis=0).tolist()) for batch, rows in cut]
    return EpochPlan([batch for batch, _ in cut], [int((lengths[batch, 1] + 1).sum()) for batch, _ in cut], shapes)


def choose_widths(sizes: NDArray[np.int64], n_widths: int = N_WIDTHS) -> NDArray[np.int64]:
    """Return the few widths with which these sizes need the least padding, smallest first.

    By dynamic programming over the last width of all sizes up to each one: Θ(n_widths · longest²) time.
    """
    up_to = np.cumsum(np.bincount(sizes))  # how many are not larger
    longest = len(up_to) - 1
    slots = np.where(np.arange(longest + 1) == 0, 0.0, np.inf)  # that hold all sizes up to each, without any width yet
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
    return _trace_back(before, longest)


def _trace_back(before: NDArray[np.int64], last: int) -> NDArray[np.int64]:
    """Trace the choices back from the longest size."""
    widths = []
    for choice in before[::-1]:
        if choice[last] != last:
            widths.append(last)
            last = int(choice[last])
    return np.array(widths[::-1], dtype=np.int64)


def round_to_widths(sizes: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the smallest width that holds each size; a larger size is rounded up by `round_up`."""
    index = np.searchsorted(widths, sizes)
    return np.where(index < len(widths), widths[np.minimum(index, len(widths) - 1)], round_up(sizes))


def round_up(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round each size up: to a multiple of 4 up to 32, then of an eighth of the next power of two."""
    step = 2 ** (np.ceil(np.log2(np.maximum(sizes, 32))).astype(np.int64) - 3)
    return -(-sizes // step) * step


def _cut(order: NDArray[np.int64], widths: NDArray[np.int64], budget: int) -> list[tuple[NDArray[np.int64], int]]:
    """Cut pairs sorted by width into batches with the rows that fit; only the very last may have fewer."""
    cut, rest, rows = [], order[:0], 0
    for width in np.unique(widths):
        rest = np.concatenate([rest, order[widths == width]])
        rows = budget // int(width)
        rows -= rows % EVEN if rows > 32 * EVEN else 0
        n = len(rest) // rows * rows
        cut.extend((batch, rows) for batch in np.split(rest[:n], range(rows, n, rows)) if n)
        rest = rest[n:]
    return [*cut, (rest, rows)] if len(rest) else cut


def rank_rows(batch: NDArray[np.int64], rank: int, world: int) -> NDArray[np.int64]:
    """Return one process's rows of a batch that all share."""
    return batch[rank::world]


AHEAD = 16  # steps whose batches wait for the device

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class PackedBatch:
    """One process's part of a batch, in one flat tensor."""

    ids: Int[Tensor, " N"]
    shape: BatchShape
    full: bool  # no source is padded

    def batch(self, device: torch.device, n_tokens: int) -> Batch:
        return unpack(self.ids.to(device, non_blocking=True), self.shape, self.full, n_tokens)


@dataclass(frozen=True, eq=False)
class StepBatches:
    """The batches of one step, and the run's position after them."""

    parts: list[PackedBatch]
    n_tokens: int  # target tokens of all processes, without padding
    epoch: int
    batch: int  # batches of the epoch that are done
    first: int  # pair, for messages


@dataclass(frozen=True, eq=False)
class EpochSample:
    """The pairs of one epoch, some perhaps several times, and their segmentations."""

    store: IdStore | Windows
    pairs: NDArray[np.int64]
    variants: NDArray[np.int64]  # (n, 2): of each source and each target
    lengths: NDArray[np.int64]  # (n, 2)


def draw_epoch(store: IdStore | Windows, seed: int, epoch: int) -> EpochSample:
    """Draw the pairs and segmentations of an epoch; the same for the same seed and number."""
    pairs = store.epoch_pairs(seed, epoch)
    variants = store.draw_variants(seed, epoch, pairs)
    return EpochSample(store, pairs, variants, store.lengths(pairs, variants))


def prefetch(
    store: IdStore | Windows, settings: Settings, world: World, device: torch.device, start: tuple[int, int]
) -> Generator[StepBatches]:
    """Yield the batches of each step from an epoch and a batch on, epoch after epoch, reproducibly.

    For a GPU they have one of a few fixed shapes, and a thread makes them ahead; on a CPU they have the least padding.
    """
    fixed = device.type == "cuda"
    steps = _step_batches(store, settings, world, fixed, start)
    return _run_ahead((_pin(step) for step in steps), AHEAD) if fixed else steps


def _step_batches(
    store: IdStore | Windows, settings: Settings, world: World, fixed: bool, start: tuple[int, int]
) -> Generator[StepBatches]:
    train = settings.train
    (number, at), budget = start, train.batch_tokens * world.size
    # Widths are those of the first epoch, so that shapes stay the same.
    widths = choose_widths(draw_epoch(store, train.seed, 0).lengths.max(axis=1) + 1)
    while train.max_epochs is None or number < train.max_epochs:
        epoch = draw_epoch(store, train.seed, number)
        plan = make_batches(epoch.lengths, budget, train.seed, number, widths)
        for batch in range(at, len(plan.batches), train.accumulate):
            numbers = range(batch, min(batch + train.accumulate, len(plan.batches)))
            parts = [_pack(epoch, plan.batches[i], plan.shapes[i], world, fixed) for i in numbers]
            n_tokens = sum(plan.n_tokens[i] for i in numbers)
            yield StepBatches(parts, n_tokens, number, numbers.stop, int(epoch.pairs[plan.batches[batch][0]]))
        number, at = number + 1, 0


def _pack(epoch: EpochSample, batch: NDArray[np.int64], shape: BatchShape, world: World, fixed: bool) -> PackedBatch:
    """Lay out this process's part; one without rows still takes part, with a row of padding."""
    mine = rank_rows(batch, world.rank, world.size)
    pairs, variants = epoch.pairs[mine], epoch.variants[mine]
    src = epoch.store.rows("src", pairs, variants[:, 0], shape.src, (), (EOS,))
    tgt = epoch.store.rows("tgt", pairs, variants[:, 1], shape.tgt + 1, (BOS,), (EOS,))
    if not fixed:
        widths = int(src[1].max(initial=1)), int(tgt[1].max(initial=2)) - 1
        shape = BatchShape(max(len(mine), 1), *widths)
        src, tgt = (src[0][:, : shape.src], src[1]), (tgt[0][:, : shape.tgt + 1], tgt[1])
    full = not fixed and len(mine) > 0 and int(src[1].min()) == shape.src
    return PackedBatch(pack(src, tgt, shape), shape, full)


def _pin(step: StepBatches) -> StepBatches:
    """Move ids to pinned memory, from which a GPU copies asynchronously."""
    parts = [PackedBatch(part.ids.pin_memory(), part.shape, part.full) for part in step.parts]
    return StepBatches(parts, step.n_tokens, step.epoch, step.batch, step.first)


def _run_ahead(items: Iterator[T], depth: int) -> Generator[T]:
    """Let a thread produce items ahead; its exceptions are raised here."""
    queue: Queue[T | BaseException | None] = Queue(depth)
    stopped = Event()

    def put(item: T | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                return queue.put(item, timeout=0.1)
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if stopped.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    Thread(target=work, daemon=True, name="prefetch").start()
    try:
        while (item := _next(queue)) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()


def _next(queue: "Queue[T]") -> T:
    while True:
        try:
            return queue.get(timeout=0.5)  # with a timeout, so that signals are handled
        except Empty:
            continue
