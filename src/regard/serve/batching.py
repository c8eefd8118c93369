"""Dynamic batching: one queue for the texts of all clients, and workers that feed the engines' schedulers."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Generic, TypeVar

from regard.config import DecodeSettings
from regard.engine import BatchScheduler, Scheduler
from regard.padding import Ids
from regard.pipeline.glossary import Glossary
from regard.pipeline.translator import SegmentedText, Translation, Translator
from regard.search.constraint import Constraint
from regard.search.hypothesis import Hypothesis
from regard.serve import BusyError, ServeSettings
from regard.serve.middleware import Metrics
from regard.serve.models import ModelRegistry
from regard.serve.requests import public_error

T = TypeVar("T")
# Source tokens times beam that a worker's schedulers hold at once: 64 sentences of 16 tokens with 5 beams, which a core
# searches in about a second, so that a short text does not wait longer behind a long one; on a GPU as fill all slots.
MAX_WORK, MAX_WORK_ON_GPU = 64 * 16 * 5, 2**18


@dataclass(frozen=True, eq=False)
class TranslationJob:
    """A text that a client waits for; cancelling the result drops it at any time. Those of a request share a `turn`."""

    model: str
    settings: DecodeSettings
    text: str
    turn: object = field(default_factory=object)
    result: Future[Translation] = field(default_factory=Future)
    terms: "RequestTerms | None" = None


class RequestTerms:
    """The terms of a request, made into a glossary once for each model that translates its texts."""

    def __init__(self, terms: Mapping[str, str | Sequence[str]]):
        self.terms = terms
        self._glossaries: dict[Translator, Glossary] = {}

    def constraints(self, translator: Translator, text: SegmentedText) -> Sequence[Sequence[Constraint]]:
        """Return what the translation of each sentence must contain."""
        return [self._glossary(translator).constraints(part) for part in text.texts]

    def rewritten(self, translator: Translator, text: SegmentedText) -> Sequence[Ids]:
        """Return each sentence with its terms in translation."""
        return translator.rewritten([text], self._glossary(translator)) or ()

    def _glossary(self, translator: Translator) -> Glossary:
        if translator not in self._glossaries:
            self._glossaries[translator] = Glossary(self.terms, translator.tokenizer)
        return self._glossaries[translator]


Place = tuple[Scheduler, int]  # a scheduler, and the number by which it knows a sentence


@dataclass(frozen=True, eq=False)
class RunningJob:
    """A job whose sentences wait for their turn, or are in a scheduler, which knows them by numbers."""

    job: TranslationJob
    translator: Translator
    text: SegmentedText
    constraints: Sequence[Sequence[Constraint]] = ()  # of each sentence, where the request has terms
    rewritten: Sequence[Ids] = ()  # each sentence with its terms in translation
    waiting: deque[int] = field(default_factory=deque)  # indices of sentences that are not in a scheduler yet
    indices: dict[Place, int] = field(default_factory=dict)  # of unfinished sentences in the text
    hypotheses: dict[int, list[Hypothesis]] = field(default_factory=dict)  # of finished sentences, by index

    def work(self, index: int) -> int:
        """Return how much there is to do for a sentence."""
        n_rows = self.job.settings.beam * (1 + len(self.constraints_of(index)))
        return (len(self.text.parts[index]) + 1) * n_rows

    def constraints_of(self, index: int) -> Sequence[Constraint]:
        """Return what the translation of a sentence must contain."""
        return self.constraints[index] if self.constraints else ()

    def translation(self) -> Translation:
        """Merge the translations of the sentences."""
        found = [self.hypotheses[index] for index in range(len(self.text.parts))]
        found = self.translator.recover([self.text], found, self.job.settings, (), self.constraints or None)
        return next(self.translator.merge([self.text], found, self.job.settings))


class RoundRobin(Generic[T]):
    """Items that are taken one by one from each request in turn, and in their order within a request."""

    def __init__(self) -> None:
        self._items: OrderedDict[object, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, list(self._items.values())))

    def __iter__(self) -> Iterator[T]:
        return (item for items in self._items.values() for item in items)

    def add(self, turn: object, item: T) -> None:
        """Add an item behind those of the same request."""
        self._items.setdefault(turn, deque()).append(item)

    def take(self, wanted: Callable[[T], bool]) -> T | None:
        """Remove the first item of the first request whose first item is wanted; that request's next turn is last."""
        for turn, items in self._items.items():
            if wanted(items[0]):
                item = items.popleft()
                self._items.move_to_end(turn)
                if not items:
                    del self._items[turn]
                return item
        return None


class BatchQueue:
    """Jobs of all requests, and the worker threads that take them in batches, from each request in turn.

    Jobs that arrive while the workers are busy form the next batch, so batches grow with the load.
    """

    def __init__(self, models: ModelRegistry, settings: ServeSettings, metrics: Metrics):
        self.models = models
        self.settings = settings
        self.metrics = metrics
        self._waiting: RoundRobin[TranslationJob] = RoundRobin()
        self._condition = Condition()
        self._closed = False
        self.max_work = MAX_WORK if models.device == "cpu" else MAX_WORK_ON_GPU
        # A GPU needs one worker only: its scheduler fills the slots from all texts.
        self._workers = [Worker(self) for _ in range(settings.workers if models.device == "cpu" else 1)]

    def open(self) -> None:
        """Start the workers."""
        for worker in self._workers:
            worker.thread.start()

    def submit(self, jobs: Sequence[TranslationJob]) -> list[Future[Translation]]:
        """Queue jobs, all or none; raise BusyError if too many are waiting."""
        with self._condition:
            if len(self) + len(jobs) > self.settings.max_waiting:
                raise BusyError(f"{len(self)} texts are waiting already: try again in a moment")
            for job in jobs:
                self._waiting.add(job.turn, job)
            self._condition.notify(len(jobs))
        return [job.result for job in jobs]

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(worker.running) for worker in self._workers)

    def close(self) -> None:
        """End the workers after their current step, and cancel unfinished jobs."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for worker in self._workers:
            worker.thread.join()
        for job in [*self._waiting, *(running.job for worker in self._workers for running in worker.running)]:
            job.result.cancel()

    def take(self, wait: bool) -> list[TranslationJob] | None:
        """Return the next jobs of one model and settings, perhaps none without waiting; None when closed."""
        with self._condition:
            if wait:
                self._condition.wait_for(lambda: self._waiting or self._closed)
                if len(self._waiting) < self.settings.batch_texts > 1:
                    self._condition.wait_for(self._full, self.settings.batch_seconds)
            if self._closed:
                return None
            return self._pop_batch() if self._waiting else []  # another worker may have been faster

    def _full(self) -> bool:
        return self._closed or len(self._waiting) >= self.settings.batch_texts

    def _pop_batch(self) -> list[TranslationJob]:
        """Remove the next job, and others of the same model and settings, from the queue."""
        batch, chars = [], 0

        def fits(job: TranslationJob) -> bool:
            first = batch[0] if batch else job
            alike = (job.model, job.settings) == (first.model, first.settings)
            return not batch or (alike and chars + len(job.text) <= self.settings.batch_chars)

        while len(batch) < self.settings.batch_texts and (job := self._waiting.take(fits)) is not None:
            batch.append(job)
            chars += len(job.text)
        return batch


class Worker:
    """A thread that takes jobs from the queue, and steps the schedulers of their models in turn."""

    def __init__(self, queue: BatchQueue):
        self.queue = queue
        self.metrics = queue.metrics
        self.running: set[RunningJob] = set()
        self.thread = Thread(target=self._work, name="batching", daemon=True)
        self._schedulers: dict[Translator, Scheduler] = {}
        self._constrained: dict[Translator, BatchScheduler] = {}  # for sentences with constraints
        self._owners: dict[Place, RunningJob] = {}  # of each sentence in a scheduler
        self._turns: RoundRobin[RunningJob] = RoundRobin()  # with sentences that are not

    def _work(self) -> None:
        while (jobs := self.queue.take(wait=not self.running)) is not None:
            while jobs:
                self._begin(jobs)
                self._feed()
                more = not self._turns and all(scheduler.wants_more() for scheduler in self._all_schedulers())
                jobs = self.queue.take(wait=False) if more else None
            self._drop_cancelled()
            self._feed()
            for scheduler in self._all_schedulers():
                if len(scheduler):
                    self._step(scheduler)

    def _all_schedulers(self) -> list[Scheduler]:
        return [*self._schedulers.values(), *self._constrained.values()]

    def _begin(self, jobs: list[TranslationJob]) -> None:
        try:
            translator = self.queue.models.open(jobs[0].model)
        except Exception as error:
            self._fail(jobs, error)
            return
        if translator not in self._schedulers:
            self._schedulers[translator] = translator.engine.scheduler()
            self._constrained[translator] = BatchScheduler(translator.engine)
        for job in jobs:
            try:
                text = translator.segment([job.text], job.settings)[0]
                constraints = () if job.terms is None else job.terms.constraints(translator, text)
                rewritten = () if job.terms is None else job.terms.rewritten(translator, text)
            except Exception as error:  # a text that cannot be segmented fails alone
                self._fail([job], error)
                continue
            running = RunningJob(job, translator, text, constraints, rewritten, deque(range(len(text.parts))))
            self.running.add(running)
            if text.parts:
                self._turns.add(job.turn, running)
            else:
                self._finish(running)

    def _feed(self) -> None:
        """Hand sentences to the schedulers, of each request in turn, and no more than are searched in a moment."""
        under_way = (running.work(running.indices[place]) for place, running in self._owners.items())
        room = self.queue.max_work - sum(under_way)
        while room > 0 and (running := self._turns.take(lambda _: True)) is not None:
            if running not in self.running:  # it was dropped
                continue
            index = running.waiting[0]
            try:
                place = self._add(running, index)
            except Exception as error:
                self._fail([running.job], error)
                continue
            running.waiting.popleft()
            running.indices[place] = index
            self._owners[place] = running
            room -= running.work(index)
            if running.waiting:
                self._turns.add(running.job.turn, running)

    def _add(self, running: RunningJob, index: int) -> Place:
        """Queue a sentence where its constraints, if it has any, are known."""
        ids, settings = running.text.parts[index], running.job.settings
        constraints = running.constraints_of(index)
        if constraints:
            bound = self._constrained[running.translator]
            return bound, bound.add(ids, settings, constraints, running.rewritten[index])
        scheduler = self._schedulers[running.translator]
        return scheduler, scheduler.add(ids, settings)

    def _drop_cancelled(self) -> None:
        for running in [each for each in self.running if each.job.result.cancelled()]:
            self._finish(running)

    def _step(self, scheduler: Scheduler) -> None:
        """Take one step of a scheduler, and finish the jobs that are complete after it."""
        done = scheduler.step()
        self.metrics.count_batch(scheduler.n_running + len(done))
        errors = {error: public_error(error) for error in {each for _, each in done if isinstance(each, Exception)}}
        finished: dict[RunningJob, Exception | None] = {}
        for number, outcome in done:
            running = self._owners.pop((scheduler, number))
            index = running.indices.pop((scheduler, number))
            if isinstance(outcome, Exception):
                finished[running] = errors[outcome]
            else:
                running.hypotheses[index] = outcome
                if not running.indices and not running.waiting:
                    finished.setdefault(running, None)
        for running, error in finished.items():
            self._finish(running, error)

    def _finish(self, running: RunningJob, error: Exception | None = None) -> None:
        """Set the result of a job unless it was cancelled, and cancel its unfinished sentences."""
        for place in running.indices:
            scheduler, number = place
            scheduler.cancel(number)
            del self._owners[place]
        self.running.discard(running)
        result = running.job.result
        if not result.set_running_or_notify_cancel():
            return self.metrics.count_dropped(1)
        try:
            if error is not None:
                raise error
            translation = running.translation()
        except Exception as failure:
            return result.set_exception(public_error(failure))
        self.metrics.count_translated(1)
        return result.set_result(translation)

    def _fail(self, jobs: list[TranslationJob], error: Exception) -> None:
        public = public_error(error)
        for running in [each for each in self.running if each.job in jobs]:
            self._finish(running, error)
        for job in jobs:
            if job.result.done():
                continue
            if job.result.set_running_or_notify_cancel():
                job.result.set_exception(public)
            else:
                self.metrics.count_dropped(1)
