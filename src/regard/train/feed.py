"""The batches of a run, one step after another, laid out for the device before it asks for them."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from regard.batch import BOS, EOS, Batch, Shape, pack, unpack
from regard.config import Settings
from regard.text.store import IdStore
from regard.text.windows import Windows
from regard.train.distributed import Team
from regard.train.plan import choose_widths, plan_epoch, share

AHEAD = 16  # groups that wait for the device

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Packed:
    """One process's part of a batch, in one row of numbers."""

    ids: Int[Tensor, " N"]
    shape: Shape
    full: bool  # no source is padded

    def batch(self, device: torch.device, n_tokens: int) -> Batch:
        """Makes the batch on a device."""
        return unpack(self.ids.to(device, non_blocking=True), self.shape, self.full, n_tokens)


@dataclass(frozen=True, eq=False)
class Group:
    """The batches of one step, and where the run stands after them."""

    parts: list[Packed]
    n_tokens: int  # real target tokens of all processes
    epoch: int
    batch: int  # batches of the epoch that are done
    first: int  # pair, for messages


@dataclass(frozen=True, eq=False)
class Epoch:
    """The pairs of one epoch, some perhaps several times, as they are cut into pieces this time."""

    store: IdStore | Windows
    pairs: NDArray[np.int64]
    variants: NDArray[np.int64]  # (n, 2): of each source and each target
    lengths: NDArray[np.int64]  # (n, 2)


def open_epoch(store: IdStore | Windows, seed: int, epoch: int) -> Epoch:
    """Draws what an epoch consists of; the same for the same seed and number."""
    pairs = store.epoch(seed, epoch)
    variants = store.draw(seed, epoch, pairs)
    return Epoch(store, pairs, variants, store.lengths(pairs, variants))


def feed(
    store: IdStore | Windows, settings: Settings, team: Team, device: torch.device, start: tuple[int, int]
) -> Generator[Group]:
    """Gives the groups from an epoch and a batch on, epoch after epoch, the same ones whoever asks.

    For a GPU they have fixed shapes, of which there are few, and are made ahead by a thread; else they are tight.
    """
    fixed = device.type == "cuda"
    groups = _groups(store, settings, team, fixed, start)
    return _ahead((_pinned(group) for group in groups), AHEAD) if fixed else groups


def _groups(
    store: IdStore | Windows, settings: Settings, team: Team, fixed: bool, start: tuple[int, int]
) -> Generator[Group]:
    train = settings.train
    (number, at), budget = start, train.batch_tokens * team.world
    # The first epoch's lengths decide for all, so that shapes stay the same.
    widths = choose_widths(open_epoch(store, train.seed, 0).lengths.max(axis=1) + 1)
    while train.max_epochs is None or number < train.max_epochs:
        epoch = open_epoch(store, train.seed, number)
        plan = plan_epoch(epoch.lengths, budget, train.seed, number, widths)
        for batch in range(at, len(plan.batches), train.accumulate):
            chosen = range(batch, min(batch + train.accumulate, len(plan.batches)))
            parts = [_packed(epoch, plan.batches[i], plan.shapes[i], team, fixed) for i in chosen]
            n_tokens = sum(plan.n_tokens[i] for i in chosen)
            yield Group(parts, n_tokens, number, chosen.stop, int(epoch.pairs[plan.batches[batch][0]]))
        number, at = number + 1, 0


def _packed(epoch: Epoch, batch: NDArray[np.int64], shape: Shape, team: Team, fixed: bool) -> Packed:
    """Lays out this process's part; one without a row of its own still takes part, with a row that says nothing."""
    mine = share(batch, team.rank, team.world)
    pairs, variants = epoch.pairs[mine], epoch.variants[mine]
    src = epoch.store.rows("src", pairs, variants[:, 0], shape.src, (), (EOS,))
    tgt = epoch.store.rows("tgt", pairs, variants[:, 1], shape.tgt + 1, (BOS,), (EOS,))
    if not fixed:
        widths = int(src[1].max(initial=1)), int(tgt[1].max(initial=2)) - 1
        shape = Shape(max(len(mine), 1), *widths)
        src, tgt = (src[0][:, : shape.src], src[1]), (tgt[0][:, : shape.tgt + 1], tgt[1])
    full = not fixed and len(mine) > 0 and int(src[1].min()) == shape.src
    return Packed(pack(src, tgt, shape), shape, full)


def _pinned(group: Group) -> Group:
    """Moves ids to memory that a GPU copies from while the program goes on."""
    parts = [Packed(part.ids.pin_memory(), part.shape, part.full) for part in group.parts]
    return Group(parts, group.n_tokens, group.epoch, group.batch, group.first)


def _ahead(items: Iterator[T], depth: int) -> Generator[T]:
    """Lets a thread make items before they are asked for; what it raises is raised here."""
    queue: Queue[T | BaseException | None] = Queue(depth)
    left = Event()

    def put(item: T | BaseException | None) -> None:
        while not left.is_set():
            try:
                return queue.put(item, timeout=0.1)
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if left.is_set():
                    return
            put(None)
        except BaseException as error:
            put(error)

    Thread(target=work, daemon=True, name="feed").start()
    try:
        while (item := _next(queue)) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        left.set()


def _next(queue: "Queue[T]") -> T:
    while True:
        try:
            return queue.get(timeout=0.5)  # with a limit, so that a signal is heard
        except Empty:
            continue
