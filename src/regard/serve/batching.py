"""Texts of all clients, translated together: one queue, and workers that feed the engines' schedulers."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread

from regard.config import DecodeSettings
from regard.engine import Scheduler
from regard.pipeline.translator import Translation, Translator
from regard.search.hypothesis import Hypothesis
from regard.serve.middleware import Metrics
from regard.serve.models import Shelf
from regard.serve.requests import BusyError, told
from regard.serve.server import ServeSettings


@dataclass(frozen=True, eq=False)
class TranslationJob:
    """One text that a client waits for; cancelling the future drops it, at any time."""

    model: str
    settings: DecodeSettings
    text: str
    answer: Future[Translation] = field(default_factory=Future)


@dataclass(frozen=True, eq=False)
class RunningJob:
    """A job whose text is cut into sentences, which a scheduler knows by numbers."""

    job: TranslationJob
    translator: Translator
    sentences: list[list[int]]
    indices: dict[int, int] = field(default_factory=dict)  # of the sentences that are not done, by their numbers
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)  # by index

    def translation(self) -> Translation:
        """Merge what was found."""
        found = [self.found[index] for index in range(len(self.sentences))]
        return next(self.translator.merge([self.sentences], found, self.job.settings))


class BatchQueue:
    """Jobs in the order in which they came, and the threads that work on them.

    While they work, others arrive: the more there is to do, the more is done at once.
    """

    def __init__(self, shelf: Shelf, settings: ServeSettings, metrics: Metrics):
        self.shelf = shelf
        self.settings = settings
        self.metrics = metrics
        self._waiting: deque[TranslationJob] = deque()
        self._bell = Condition()
        self._closed = False
        # A GPU has one scheduler, which fills its slots from all texts.
        self._workers = [Worker(self) for _ in range(settings.workers if shelf.device == "cpu" else 1)]

    def open(self) -> None:
        """Begin to work."""
        for worker in self._workers:
            worker.thread.start()

    def submit(self, jobs: Sequence[TranslationJob]) -> list[Future[Translation]]:
        """Queue texts, all or none; raise BusyError where too many wait."""
        with self._bell:
            if len(self) + len(jobs) > self.settings.max_waiting:
                raise BusyError(f"{len(self)} texts are waiting already: come back in a moment")
            self._waiting += jobs
            self._bell.notify(len(jobs))
        return [job.answer for job in jobs]

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(worker.running) for worker in self._workers)

    def close(self) -> None:
        """End the threads after the step that they take now; what is not done is cancelled."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()
        for worker in self._workers:
            worker.thread.join()
        for job in [*self._waiting, *(running.job for worker in self._workers for running in worker.running)]:
            job.answer.cancel()

    def take(self, wait: bool) -> list[TranslationJob] | None:
        """Return the next jobs of one model and setting, none where a worker does not wait; None at the end."""
        with self._bell:
            if wait:
                self._bell.wait_for(lambda: self._waiting or self._closed)
                if len(self._waiting) < self.settings.batch_texts > 1:
                    self._bell.wait_for(self._full, self.settings.batch_seconds)
            if self._closed:
                return None
            return self._alike() if self._waiting else []  # another thread may have been faster

    def _full(self) -> bool:
        return self._closed or len(self._waiting) >= self.settings.batch_texts

    def _alike(self) -> list[TranslationJob]:
        """Take the oldest job and those like it out of the queue."""
        first, chars, taken, left = self._waiting[0], 0, [], deque()
        for job in self._waiting:
            like = (job.model, job.settings) == (first.model, first.settings)
            fits = len(taken) < self.settings.batch_texts and chars + len(job.text) <= self.settings.batch_chars
            if not taken or (like and fits):
                taken.append(job)
                chars += len(job.text)
            else:
                left.append(job)
        self._waiting = left
        return taken


class Worker:
    """One thread: it takes jobs from the queue, and lets the schedulers of their models step one after another."""

    def __init__(self, queue: BatchQueue):
        self.queue = queue
        self.metrics = queue.metrics
        self.running: set[RunningJob] = set()
        self.thread = Thread(target=self._work, name="batching", daemon=True)
        self._schedulers: dict[Translator, Scheduler] = {}
        self._owners: dict[tuple[Scheduler, int], RunningJob] = {}  # of each sentence that is not done

    def _work(self) -> None:
        while (jobs := self.queue.take(wait=not self.running)) is not None:
            while jobs:
                self._begin(jobs)
                more = all(scheduler.wants_more() for scheduler in self._schedulers.values())
                jobs = self.queue.take(wait=False) if more else None
            self._drop_cancelled()
            for scheduler in self._schedulers.values():
                if len(scheduler):
                    self._step(scheduler)

    def _begin(self, jobs: list[TranslationJob]) -> None:
        try:
            translator = self.queue.shelf.open(jobs[0].model)
        except Exception as error:
            self._fail(jobs, error)
            return
        scheduler = self._schedulers.get(translator)
        if scheduler is None:
            scheduler = self._schedulers[translator] = translator.engine.scheduler()
        for job in jobs:
            try:
                running = RunningJob(job, translator, translator.segment([job.text])[0])
                self.running.add(running)
                for index, ids in enumerate(running.sentences):
                    number = scheduler.add(ids, job.settings)
                    running.indices[number] = index
                    self._owners[scheduler, number] = running
                if not running.sentences:
                    self._end(running)
            except Exception as error:  # a text that cannot be cut is its own sender's trouble
                self._fail([job], error)

    def _drop_cancelled(self) -> None:
        for running in [each for each in self.running if each.job.answer.cancelled()]:
            self._end(running)

    def _step(self, scheduler: Scheduler) -> None:
        """Let a scheduler work for a moment, and answer the texts that are done with it."""
        done = scheduler.step()
        self.metrics.together(scheduler.n_running + len(done))
        errors = {error: told(error) for error in {each for _, each in done if isinstance(each, Exception)}}
        ends: dict[RunningJob, Exception | None] = {}
        for number, outcome in done:
            running = self._owners.pop((scheduler, number))
            index = running.indices.pop(number)
            if isinstance(outcome, Exception):
                ends[running] = errors[outcome]
            else:
                running.found[index] = outcome
                if not running.indices:
                    ends.setdefault(running, None)
        for running, error in ends.items():
            self._end(running, error)

    def _end(self, running: RunningJob, error: Exception | None = None) -> None:
        """Answer a text, unless it was cancelled, and drop what is left of it."""
        scheduler = self._schedulers[running.translator]
        for number in running.indices:
            scheduler.cancel(number)
            del self._owners[scheduler, number]
        self.running.discard(running)
        answer = running.job.answer
        if not answer.set_running_or_notify_cancel():
            return self.metrics.drop(1)
        try:
            if error is not None:
                raise error
            translation = running.translation()
        except Exception as failure:
            return answer.set_exception(told(failure))
        self.metrics.done(1)
        return answer.set_result(translation)

    def _fail(self, jobs: list[TranslationJob], error: Exception) -> None:
        public = told(error)
        for running in [each for each in self.running if each.job in jobs]:
            self._end(running, error)
        for job in jobs:
            if job.answer.done():
                continue
            if job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(public)
            else:
                self.metrics.drop(1)
