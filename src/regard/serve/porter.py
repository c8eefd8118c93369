"""Texts for models with slots: each begins while others are being translated, and is answered when it is over."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread

from regard.config import DecodeSettings
from regard.decode.hall import Hall
from regard.decode.hypothesis import Hypothesis
from regard.decode.translation import Translation
from regard.decode.translator import Translator
from regard.model.slotted import SlottedTransformer
from regard.serve.errors import told
from regard.serve.metrics import Metrics


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
