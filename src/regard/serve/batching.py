"""Dynamic batching queue and slot worker."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from threading import Condition, Thread

from regard.config import DecodeSettings
from regard.engine.cuda import SlottedTransformer
from regard.engine.slots import Hall
from regard.pipeline.translator import ALONE, Translation, Translator
from regard.search.hypothesis import Hypothesis
from regard.serve.middleware import Metrics
from regard.serve.models import Shelf
from regard.serve.requests import BusyError, told
from regard.serve.server import ServeSettings


@dataclass(frozen=True, eq=False)
class Text:
    """One text, cut into sentences, that somebody waits for; cancelling the future gives it up at any time."""

    translator: Translator
    settings: DecodeSettings
    sentences: list[list[int]]
    answer: Future[Translation]
    places: dict[int, int] = field(default_factory=dict)  # of the sentences that are not over, by their numbers
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)  # by place

    def translation(self) -> Translation:
        """Joins what was found."""
        found = [self.found[place] for place in range(len(self.sentences))]
        return next(self.translator.joined([self.sentences], found, self.settings))


class Porter:
    """One thread that brings texts into the halls of their models, and takes the halls' turns one after another."""

    def __init__(self, metrics: Metrics):
        self.metrics = metrics
        self._texts: set[Text] = set()  # that are not answered
        self._new: list[Text] = []
        self._gone: list[Text] = []
        self._bell = Condition()
        self._closed = False
        self._halls: dict[Translator, Hall] = {}
        self._owners: dict[tuple[Hall, int], Text] = {}  # of each sentence that is not over
        self._thread = Thread(target=self._work, name="porter", daemon=True)

    def open(self) -> None:
        """Begins to work."""
        self._thread.start()

    def take(self, texts: Sequence[Text]) -> None:
        """Takes texts; any thread may bring them."""
        with self._bell:
            self._texts.update(texts)
            self._new += texts
            self._bell.notify()
        for text in texts:
            text.answer.add_done_callback(lambda answer, text=text: self._answered(text))

    def __len__(self) -> int:
        return len(self._texts)

    def close(self) -> None:
        """Ends the thread after the turn that it takes now; what is not over is given up."""
        with self._bell:
            self._closed = True
            self._bell.notify()
        self._thread.join()
        for text in list(self._texts):
            text.answer.cancel()

    def _answered(self, text: Text) -> None:
        """Notes who went away; called by whoever ends a future."""
        if text.answer.cancelled():
            with self._bell:
                self._gone.append(text)

    def _work(self) -> None:
        while self._awake():
            for hall in self._halls.values():
                if len(hall):
                    self._turn(hall)

    def _awake(self) -> bool:
        """Waits for texts, lets new ones in and those that nobody waits for out; tells whether to go on."""
        with self._bell:
            self._bell.wait_for(lambda: self._texts or self._closed)
            new, self._new, gone, self._gone = self._new, [], self._gone, []
            if self._closed:
                return False
        for text in new:
            self._bring(text)
        for text in gone:
            if text in self._texts:
                self._end(text)
        return True

    def _bring(self, text: Text) -> None:
        hall = self._hall(text.translator)
        try:
            for place, ids in enumerate(text.sentences):
                number = hall.add(ids, text.settings)
                text.places[number] = place
                self._owners[hall, number] = text
        except ValueError as error:
            self._end(text, error)
        else:
            if not text.sentences:
                self._end(text)

    def _hall(self, translator: Translator) -> Hall:
        if translator not in self._halls:
            assert isinstance(translator.model, SlottedTransformer), "only models with slots have a hall"
            self._halls[translator] = Hall(translator.model)
        return self._halls[translator]

    def _turn(self, hall: Hall) -> None:
        """Lets a hall take a turn, and answers the texts that are over with it."""
        over = hall.turn()
        self.metrics.together(hall.n_begun + len(over))
        errors = {error: told(error) for error in {each for _, each in over if isinstance(each, Exception)}}
        ends: dict[Text, Exception | None] = {}
        for number, outcome in over:
            text = self._owners.pop((hall, number))
            place = text.places.pop(number)
            if isinstance(outcome, Exception):
                ends[text] = errors[outcome]
            else:
                text.found[place] = outcome
                if not text.places:
                    ends.setdefault(text, None)
        for text, error in ends.items():
            self._end(text, error)

    def _end(self, text: Text, error: Exception | None = None) -> None:
        """Answers a text, unless it was cancelled, and gives up what is left of it."""
        hall = self._hall(text.translator)
        for number in text.places:
            hall.give_up(number)
            del self._owners[hall, number]
        self._texts.discard(text)
        if not text.answer.set_running_or_notify_cancel():
            return self.metrics.drop(1)
        try:
            if error is not None:
                raise error
            translation = text.translation()
        except Exception as failure:
            return text.answer.set_exception(told(failure))
        self.metrics.done(1)
        return text.answer.set_result(translation)


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
