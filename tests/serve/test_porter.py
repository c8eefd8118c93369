"""Models with slots: texts begin while others are translated, are answered when over, and are the same as alone."""

import threading
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest

from regard.batch import EOS
from regard.decode.conveyor import Conveyor
from regard.decode.hall import Hall
from regard.decode.translator import Translator
from regard.model.slotted import SlottedTransformer
from regard.model.swift import packable
from regard.serve.desk import Job
from regard.serve.errors import BrokenError, BusyError
from regard.serve.shelf import Shelf
from tests.serve.server import DECODE, TEXTS, client_of
from tests.serve.test_batching import ask_all, count, open_desk, until

LONG = "jihgfedcba" * 4
PARTS = "bad cab. hello! face. dead bee, a big head! ice age, ice age, ice age, ice."  # of 40 pieces at most


class InSlots(Shelf):
    """A shelf whose Transformers have slots, as all have on a GPU."""

    def __init__(self, folders, home, endless=False):
        super().__init__([str(folder) for folder in folders], home=home)
        for found in map(self.open, self.books):
            plain = packable(found.model.plain())
            if plain is not None:
                found.model = SlottedTransformer(plain)
                found.model.least = EOS + 1 if endless else found.model.least


@pytest.fixture
def slotted(folders, home):
    return InSlots(folders, home)


@pytest.fixture
def endless(folders, home):
    """Every text is written to its limit."""
    return InSlots(folders, home, endless=True)


class Turns:
    """Turns of halls, one for each that is allowed."""

    def __init__(self, monkeypatch):
        self.allowed, self.taken = threading.Semaphore(0), 0
        turn = Hall.turn

        def when_allowed(hall):
            self.allowed.acquire(timeout=10)
            found = turn(hall)
            self.taken += 1
            return found

        monkeypatch.setattr(Hall, "turn", when_allowed)

    def take(self, n=1):
        want = self.taken + n
        self.allowed.release(n)
        until(lambda: self.taken == want)

    def go(self):
        self.allowed.release(10_000)


@pytest.fixture
def turns(monkeypatch):
    found = Turns(monkeypatch)
    yield found
    found.go()


def job(text, **changes):
    return Job("tiny", replace(DECODE, **changes), text)


def same(found, expected):
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], rel=1e-4)


def test_a_short_text_that_comes_later_is_answered_before_a_long_one(endless, turns):
    desk, ends = open_desk(endless), []
    (long,) = desk.submit([job(LONG)])
    long.add_done_callback(lambda _: ends.append("long"))
    turns.take(2)
    (short,) = desk.submit([job("a")])
    short.add_done_callback(lambda _: ends.append("short"))
    until(lambda: len(desk) == 2 and len(desk.porter) == 2)
    turns.take(5)  # one may have been under way; the long text needs 12, the short one 3
    assert short.result(1) and ends == ["short"] and not long.done()
    assert turns.taken == 7
    turns.go()
    same([short.result(20), long.result(20)], endless.open("tiny").translate(["a", LONG], DECODE))
    desk.close()


def test_what_is_asked_for_differently_goes_side_by_side(endless, turns):
    desk = open_desk(endless)
    ways = [{}, {"beam": 2, "n_best": 2}, {"method": "greedy", "beam": 1}]
    answers = desk.submit([job(LONG, **way) for way in ways])
    until(lambda: len(desk.porter) == 3)
    turns.take(11)
    assert not any(answer.done() for answer in answers)
    turns.go()
    found = [answer.result(20) for answer in answers]
    desk.close()
    translator = endless.open("tiny")
    same(found, [translator.translate(LONG, replace(DECODE, **way))[0] for way in ways])
    assert [len(each.alternatives) for each in found] == [1, 2, 1]


def test_texts_of_several_sentences_and_of_none_are_whole(slotted):
    texts = [PARTS, "", LONG, "  ", "a", PARTS[9:]]
    desk = open_desk(slotted)
    found = [answer.result(20) for answer in desk.submit([job(text) for text in texts])]
    desk.close()
    assert "regard_texts_total 6" in desk.metrics.text()
    same(found, slotted.open("tiny").translate(texts, DECODE))


def test_a_search_that_slots_cannot_do_is_done_as_before(slotted):
    desk, how = open_desk(slotted), replace(DECODE, method="sample", beam=1, seed=3)
    found = [answer.result(20) for answer in desk.submit([Job("tiny", how, text) for text in TEXTS])]
    desk.close()
    assert not desk.porter._halls
    same(found, slotted.open("tiny").translate(TEXTS, how))


def test_a_search_that_fails_harms_no_other(slotted, monkeypatch, caplog):
    begin = Conveyor.begin

    def breaks(self, sentences, ids):
        if self.settings.beam == 2:
            raise RuntimeError("secret: out of memory")
        begin(self, sentences, ids)

    monkeypatch.setattr(Conveyor, "begin", breaks)
    desk = open_desk(slotted)
    good, wrong = desk.submit([job(text) for text in TEXTS]), desk.submit([job(LONG, n_best=4)])
    bad = desk.submit([job(text, beam=2) for text in (PARTS, "a", "face")])
    for answer in bad:
        with pytest.raises(BrokenError, match="the translation failed; the server's log says why"):
            answer.result(20)
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 4 and 3"):
        wrong[0].result(20)
    same([answer.result(20) for answer in good], slotted.open("tiny").translate(TEXTS, DECODE))
    assert "secret: out of memory" in caplog.text
    monkeypatch.undo()
    again = desk.submit([job("face", beam=2)])[0].result(20)
    same([again], slotted.open("tiny").translate("face", replace(DECODE, beam=2)))
    assert len(desk) == 0 and not desk.porter._owners
    desk.close()


def test_an_answer_that_cannot_be_made_harms_no_other(slotted, monkeypatch):
    joined = Translator.joined

    def breaks(self, texts, found, settings):
        if len(texts[0]) > 1:
            raise RuntimeError("secret")
        return joined(self, texts, found, settings)

    monkeypatch.setattr(Translator, "joined", breaks)
    desk = open_desk(slotted)
    bad, good = desk.submit([job(PARTS), job("face")])
    with pytest.raises(BrokenError, match="the server's log says why"):
        bad.result(20)
    assert good.result(20)
    desk.close()


def test_who_goes_away_leaves_the_slots(endless, turns):
    desk = open_desk(endless, batch_texts=1)
    kept, in_slots, also_kept = desk.submit([job(text) for text in (LONG, LONG[1:], LONG[2:])])
    until(lambda: len(desk.porter) == 3)
    turns.take(2)
    (hall,) = desk.porter._halls.values()
    assert hall.n_begun == 3
    assert in_slots.cancel()
    turns.take(2)  # one may have been under way
    assert hall.n_begun == 2 and len(desk) == 2
    turns.go()
    found = [answer.result(20) for answer in (kept, also_kept)]
    same(found, endless.open("tiny").translate([LONG, LONG[2:]], DECODE))
    desk.close()
    assert "regard_dropped_texts_total 1" in desk.metrics.text() and "regard_texts_total 2" in desk.metrics.text()


def test_closing_gives_up_what_is_not_over(endless, turns):
    desk = open_desk(endless)
    answers = desk.submit([job(LONG), job(PARTS)])
    until(lambda: len(desk.porter) == 2)
    turns.take(2)
    closing = threading.Thread(target=desk.close)
    closing.start()
    until(lambda: desk.porter._closed)
    turns.go()
    closing.join(20)
    assert not closing.is_alive() and not desk.porter._thread.is_alive()
    assert turns.taken <= 3, "the turn that is under way is the last"
    for answer in answers:
        with pytest.raises(CancelledError):
            answer.result(1)


def test_texts_in_slots_count_among_those_that_wait(endless, turns):
    desk = open_desk(endless, max_waiting=3)
    desk.submit([job(LONG), job(LONG)])
    until(lambda: len(desk.porter) == 2)
    with pytest.raises(BusyError, match="2 texts"):
        desk.submit([job("a"), job("a")])
    turns.go()
    desk.close()


def test_many_clients_of_models_with_and_without_slots(slotted):
    ways = [{"beam": 1}, {}, {"alternatives": 1}, {"beam": 2}]
    asks = [{"q": text, "source": "zh", "target": "en", **ways[i % 4]} for i, text in enumerate(TEXTS * 4)]
    asks += [{"q": TEXTS[i:], "source": "en", "target": "zh"} for i in range(4)]
    asks += [{"q": [PARTS, "", LONG], "source": "zh", "target": "en"}]
    with client_of(slotted) as client:
        bad = [{"q": "a" * 41, "source": "zh", "target": "en"}]
        together = ask_all(client.base_url, asks + bad)
        assert [said.status_code for said in together] == [200] * len(asks) + [400]
        n_texts = count(client, "regard_texts_total")
    assert n_texts == 40 + 10 + 9 + 8 + 7 + 3
    translator = slotted.open("tiny")
    assert isinstance(translator.model, SlottedTransformer)
    for said, text in zip(together[1:40:4], (TEXTS * 4)[1::4], strict=True):
        assert said.json()["translatedText"] == translator.translate(text, DECODE)[0].text
    whole = translator.translate([PARTS, "", LONG], DECODE)
    assert together[-2].json()["translatedText"] == [each.text for each in whole]
    with client_of(slotted) as client:
        assert [client.post("/translate", json=ask).json() for ask in asks] == [said.json() for said in together[:-1]]


def test_a_trace_and_a_stream_go_beside_the_slots(slotted):
    with client_of(slotted) as client:
        said = client.post("/translate", json={"q": "face", "source": "zh", "target": "en"}).json()["translatedText"]
        assert client.post("/trace", json={"text": "face", "model": "tiny"}).json()["output"] == said
        lines = client.post("/translate/stream", json={"text": "face", "model": "tiny"}).text.splitlines()
        assert said in lines[-1]
