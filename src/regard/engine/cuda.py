"""The engine for GPUs: searches in slots that are refilled as sentences end, and continuous batching for a server."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import torch

from regard.config import DecodeSettings
from regard.engine import SELF_CONTAINED, BatchScheduler, Engine, Scheduler, Vocabulary
from regard.engine.pack import packable, rotary_width
from regard.engine.plain import PlainDecoder
from regard.engine.slot_decoder import SlotDecoder
from regard.engine.slots import (
    MIN_SOURCE,
    SlotPool,
    max_slots,
    refill_and_run,
    round_up,
    search_in_slots,
    target_size,
)
from regard.model.seq2seq import Seq2Seq
from regard.model.transformer import Transformer
from regard.padding import Ids
from regard.search import CHECK
from regard.search.constrained import Constraint
from regard.search.hypothesis import Hypothesis

MAX_POOLS = 3  # of different sizes that an engine keeps
MAX_BUCKETS = 8  # that have slots at the same time: each of many slots takes a gigabyte or so of a GPU


class CudaEngine(Engine):
    """Runs greedy and beam search in slots, a step of all of them being one captured graph."""

    def __init__(self, model: Transformer):
        self._model = model
        self._decoder = PlainDecoder(model)
        self.slot_decoder = SlotDecoder(model)
        self._pools: dict[tuple[int, int, int, DecodeSettings], SlotPool] = {}

    @property
    def model(self) -> Seq2Seq:
        return self._model

    @property
    def decoder(self) -> PlainDecoder:
        return self._decoder

    def search(
        self,
        sources: Sequence[Ids],
        settings: DecodeSettings,
        prefixes: Sequence[Ids] | None = None,
        vocabulary: Vocabulary | None = None,
        constraints: Sequence[Sequence[Constraint] | None] | None = None,
        rewritten: Sequence[Ids] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        free = constraints is None and (prefixes is None or not any(len(prefix) for prefix in prefixes))
        if not free or vocabulary is not None or not self_contained(settings):
            yield from super().search(sources, settings, prefixes, vocabulary, constraints, rewritten)
            return
        CHECK[settings.method](settings)
        yield from search_in_slots(lambda S, n: self._pool(S, n, settings), sources)

    @torch.inference_mode()
    def _pool(self, S: int, n_sentences: int, settings: DecodeSettings) -> SlotPool:
        """Return an empty pool: one of before, where it has the size."""
        B, T = min(max_slots(S, settings), round_up(n_sentences, 1)), target_size(S, settings)
        key = (B, S, T, settings)
        if key not in self._pools:
            while len(self._pools) >= MAX_POOLS:
                self._pools.pop(next(iter(self._pools)))
            self._pools[key] = SlotPool(self.slot_decoder, B, S, T, settings)
        self._pools[key].clear()
        return self._pools[key]

    def scheduler(self) -> "SlotScheduler":
        return SlotScheduler(self)


def cuda_engine(model: Seq2Seq) -> CudaEngine | None:
    """Return the engine of a model on a GPU; None where it is not there, or its parts do not allow it."""
    transformer = packable(model)
    if transformer is None or not transformer.output.table.weight.is_cuda or rotary_width(transformer):
        return None
    return CudaEngine(transformer)


def self_contained(settings: DecodeSettings) -> bool:
    """Tell whether a search runs in slots: those that draw, or that begin with a given token, ask at each step."""
    return settings.method in SELF_CONTAINED and settings.forced_bos is None


class Bucket:
    """Sentences of up to S tokens and of the same settings: those that wait, and those in slots.

    A sentence that comes while there is no other has a pool of one slot, whose steps are the fastest.
    """

    def __init__(self, decoder: SlotDecoder, S: int, settings: DecodeSettings):
        self.decoder, self.S, self.settings = decoder, S, settings
        self.waiting: list[int] = []  # in the order in which they came
        self.ids: dict[int, Ids] = {}  # of all that are not done
        self.pools: dict[int, SlotPool] = {}  # by the number of their slots

    @property
    def n_running(self) -> int:
        """Count the sentences in slots."""
        return len(self.ids) - len(self.waiting)

    def add(self, number: int, ids: Ids) -> None:
        """Queue a sentence; its number is above those of all before."""
        self.waiting.append(number)
        self.ids[number] = ids

    @torch.inference_mode()
    def cancel(self, number: int) -> None:
        """Drop a sentence, wherever it is."""
        if number in self.waiting:
            self.waiting.remove(number)
        for pool in self.pools.values():
            pool.cancel(number)
        del self.ids[number]

    @torch.inference_mode()
    def step(self, before: int) -> list[tuple[int, list[Hypothesis]]]:
        """Let those numbered below `before` begin where slots are free, take some steps, and return what is final."""
        waiting, found = self.waiting[: bisect_left(self.waiting, before)], []
        n_waiting, target = len(waiting), self._next_pool(len(waiting))
        for pool in self.pools.values():
            mine = waiting if pool is target else []
            if mine or pool.n_free < pool.n_slots:
                found += refill_and_run(pool, mine, self.ids)
        del self.waiting[: n_waiting - len(waiting)]
        for number, _ in found:
            del self.ids[number]
        return found

    def _next_pool(self, n_waiting: int) -> SlotPool | None:
        """Return the pool in which the next sentences begin."""
        if not n_waiting:
            return None
        B = 1 if n_waiting == 1 and not self.n_running else max_slots(self.S, self.settings)
        if B not in self.pools:
            self.pools[B] = SlotPool(self.decoder, B, self.S, target_size(self.S, self.settings), self.settings)
        return self.pools[B]


class SlotScheduler(Scheduler):
    """Sentences in buckets of one size and setting; what is found is what `CudaEngine.search` finds.

    A bucket that wants slots when no more may have some is not overtaken by later sentences, so that slots become free.
    What does not run in slots, such as sampling, is searched in batches.
    """

    def __init__(self, engine: CudaEngine):
        self.engine = engine
        self._batches = BatchScheduler(engine)
        self._in_batches: dict[int, int] = {}  # from our numbers to theirs
        self._buckets: dict[tuple[int, DecodeSettings], Bucket] = {}  # the last to be used stands last
        self._bucket_of: dict[int, Bucket] = {}  # each sentence that is not done
        self._n_added = 0

    def __len__(self) -> int:
        return len(self._bucket_of) + len(self._batches)

    def wants_more(self) -> bool:
        return True

    @property
    def n_running(self) -> int:
        return sum(bucket.n_running for bucket in self._buckets.values())

    def add(self, ids: Ids, settings: DecodeSettings) -> int:
        number = self._n_added
        if not self_contained(settings):
            self._in_batches[number] = self._batches.add(ids, settings)
            self._n_added += 1
            return number
        CHECK[settings.method](settings)
        S = round_up(len(ids) + 1, MIN_SOURCE)
        bucket = self._buckets.pop((S, settings), None) or Bucket(self.engine.slot_decoder, S, settings)
        self._buckets[S, settings] = self._bucket_of[number] = bucket
        bucket.add(number, ids)
        self._n_added += 1
        return number

    def cancel(self, number: int) -> None:
        if number in self._in_batches:
            self._batches.cancel(self._in_batches.pop(number))
        else:
            self._bucket_of.pop(number).cancel(number)

    def step(self) -> list[tuple[int, list[Hypothesis] | Exception]]:
        """Let every bucket take some steps; where one fails, its sentences have its error."""
        admitted, refused = self._admit()
        self._drop_idle(MAX_BUCKETS - len(admitted))
        before = refused[0].waiting[0] if refused else self._n_added
        done: list[tuple[int, list[Hypothesis] | Exception]] = []
        for bucket in admitted:
            try:
                done += bucket.step(before)
            except Exception as error:
                done += [(number, error) for number in bucket.ids]
                del self._buckets[bucket.S, bucket.settings]
                self._drop_idle(0)  # memory may be what was missing
        for number, _ in done:
            del self._bucket_of[number]
        ours = {theirs: number for number, theirs in self._in_batches.items()}
        others = [(ours[theirs], outcome) for theirs, outcome in self._batches.step()]
        for number, _ in others:
            del self._in_batches[number]
        return done + others

    def _admit(self) -> tuple[list[Bucket], list[Bucket]]:
        """Return the buckets that may have slots, and those that may not: who has some keeps them, then the oldest."""
        busy = [bucket for bucket in self._buckets.values() if bucket.ids]
        busy.sort(key=lambda bucket: (bucket.n_running == 0, next(iter(bucket.ids))))
        for bucket in busy[MAX_BUCKETS:]:
            bucket.pools.clear()
        return busy[:MAX_BUCKETS], busy[MAX_BUCKETS:]

    def _drop_idle(self, n_kept: int) -> None:
        """Drop buckets without sentences, but for those that were used last."""
        idle = [key for key, bucket in self._buckets.items() if not bucket.ids]
        for key in idle[: max(0, len(idle) - n_kept)]:
            del self._buckets[key]
