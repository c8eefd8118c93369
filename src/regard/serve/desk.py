"""Texts of many clients become few searches: what waits together is translated together."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from threading import Condition, Thread

from regard.config import DecodeSettings
from regard.decode.translation import Translation
from regard.decode.translator import ALONE, Translator
from regard.model.slotted import SlottedTransformer
from regard.serve.errors import BusyError, told
from regard.serve.metrics import Metrics
from regard.serve.porter import Porter, Text
from regard.serve.settings import ServeSettings
from regard.serve.shelf import Shelf


@dataclass(frozen=True, eq=False)
class Job:
    """One text that somebody waits for; cancelling the future gives it up."""

    model: str
    settings: DecodeSettings
    text: str
    answer: Future[Translation] = field(default_factory=Future)


class Desk:
    """Threads that take the oldest text and all that wait for the same model and settings, up to a limit.

    While they work, others arrive: the more there is to do, the more is done at once. Texts for a model with slots are
    only cut here, and given to the porter.
    """

    def __init__(self, shelf: Shelf, settings: ServeSettings, metrics: Metrics):
        self.shelf = shelf
        self.settings = settings
        self.metrics = metrics
        self.porter = Porter(metrics)
        self._waiting: deque[Job] = deque()
        self._bell = Condition()
        self._closed = False
        self._threads = [Thread(target=self._work, name="desk", daemon=True) for _ in range(settings.workers)]

    def open(self) -> None:
        """Begins to work."""
        self.porter.open()
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Sequence[Job]) -> list[Future[Translation]]:
        """Lets texts wait, all or none; raises BusyError where too many do."""
        with self._bell:
            if len(self) + len(jobs) > self.settings.max_waiting:
                raise BusyError(f"{len(self)} texts are waiting already: come back in a moment")
            self._waiting += jobs
            self._bell.notify(len(jobs))
        return [job.answer for job in jobs]

    def __len__(self) -> int:
        return len(self._waiting) + len(self.porter)

    def close(self) -> None:
        """Ends the threads after what they do now; what still waits is given up."""
        with self._bell:
            self._closed = True
            self._bell.notify_all()
        for thread in self._threads:
            thread.join()
        self.porter.close()
        for job in self._waiting:
            job.answer.cancel()

    def _work(self) -> None:
        while jobs := self._taken():
            try:
                translator = self.shelf.open(jobs[0].model)
            except Exception as error:
                _fail(self._live(jobs), error)
                continue
            if isinstance(translator.model, SlottedTransformer) and jobs[0].settings.method in ALONE:
                self.porter.take(self._cut(translator, jobs))
            elif live := self._live(jobs):
                self._translate(translator, live)

    def _live(self, jobs: list[Job]) -> list[Job]:
        """Gives those that somebody still waits for, who cannot go away any more."""
        live = [job for job in jobs if job.answer.set_running_or_notify_cancel()]
        self.metrics.drop(len(jobs) - len(live))
        return live

    def _taken(self) -> list[Job]:
        """Waits for texts; none are there only when the desk is closed."""
        with self._bell:
            while True:
                self._bell.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return []
                if len(self._waiting) < self.settings.batch_texts > 1:
                    self._bell.wait_for(self._full, self.settings.batch_seconds)
                if self._waiting:  # another thread may have been quicker
                    return self._together()

    def _full(self) -> bool:
        return self._closed or len(self._waiting) >= self.settings.batch_texts

    def _together(self) -> list[Job]:
        """Takes the oldest job and those like it out of the queue."""
        first, chars, taken, left = self._waiting[0], 0, [], deque()
        for job in self._waiting:
            like = (job.model, job.settings) == (first.model, first.settings)
            room = len(taken) < self.settings.batch_texts and chars + len(job.text) <= self.settings.batch_chars
            if not taken or (like and room):
                taken.append(job)
                chars += len(job.text)
            else:
                left.append(job)
        self._waiting = left
        return taken

    def _cut(self, translator: Translator, jobs: list[Job]) -> list[Text]:
        texts = []
        for job in jobs:
            try:
                texts.append(Text(translator, job.settings, translator.parts([job.text], 1)[0], job.answer))
            except Exception as error:
                _fail(self._live([job]), error)
        return texts

    def _translate(self, translator: Translator, jobs: list[Job]) -> None:
        try:
            settings = jobs[0].settings
            texts, readable = [], []
            for job in jobs:
                try:
                    texts += translator.parts([job.text], 1)
                    readable.append(job)
                except ValueError as error:  # a text that cannot be cut is its own sender's trouble
                    job.answer.set_exception(error)
            found = translator.find(texts, settings, [], lambda n_texts: None)
            made = translator.joined(texts, found, settings)
            self.metrics.together(len(readable))
            self.metrics.done(len(readable))
            for job, translation in zip(readable, islice(made, len(readable)), strict=True):
                job.answer.set_result(translation)
        except Exception as error:
            _fail([job for job in jobs if not job.answer.done()], error)


def _fail(jobs: list[Job], error: Exception) -> None:
    said = told(error)
    for job in jobs:
        job.answer.set_exception(said)
