"""Many clients at once: each gets its own answer, the same as alone, and searches are shared.

Models with slots: texts begin while others are translated, are answered when over, and are the same as alone.
"""

import asyncio
import re
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import replace

import httpx
import pytest

from regard.engine.cuda import CudaEngine, SlotScheduler
from regard.engine.pack import packable
from regard.engine.slots import SlotPool
from regard.padding import EOS
from regard.pipeline.translator import Translator
from regard.serve.batching import BatchQueue, TranslationJob
from regard.serve.middleware import Metrics
from regard.serve.models import Shelf
from regard.serve.requests import BrokenError, BusyError
from regard.serve.server import ServeSettings
from tests.serve.server import DECODE, TEXTS, client_of, make_folder, new_shelf


def count(client, name):
    return int(re.search(rf"^{name} (\d+)$", client.get("/metrics").text, re.M)[1])


def ask_all(url, asks):
    """Sends all requests at once, and gives the answers in their order."""

    async def run():
        limits = httpx.Limits(max_connections=len(asks))
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(client.post("/translate", json=ask) for ask in asks))

    return asyncio.run(run())


def test_64_clients_get_their_own_answers(shelf, translator):
    texts = [f"{text} {'abcdefghij'[i // 10]}" for i, text in enumerate(TEXTS * 7)][:64]
    assert len(set(texts)) == 64
    with client_of(shelf, batch_seconds=0.05) as client:
        found = ask_all(client.base_url, [{"q": text, "source": "zh", "target": "en"} for text in texts])
        batches = count(client, "regard_batch_texts_count")
    assert [said.json()["translatedText"] for said in found] == [
        each.text for each in translator.translate(texts, DECODE)
    ]
    assert batches < 32


def test_different_models_and_settings_are_not_mixed(shelf, client):
    asks = [{"q": text, "source": "zh", "target": "en", "beam": 1 + i % 3} for i, text in enumerate(TEXTS * 2)]
    asks += [{"q": text, "source": "en", "target": "zh", "alternatives": i % 2} for i, text in enumerate(TEXTS)]
    alone = [client.post("/translate", json=ask).json() for ask in asks]
    together = [said.json() for said in ask_all(client.base_url, asks)]
    assert together == alone


def test_a_text_that_cannot_be_read_harms_no_other(client):
    texts = ["bad cab", "a" * 41, "hello"]
    found = ask_all(client.base_url, [{"q": text, "source": "zh", "target": "en"} for text in texts])
    assert [said.status_code for said in found] == [200, 400, 200]


class Slow(Shelf):
    """A shelf whose model opens when it is told to."""

    def __init__(self, shelf, home):
        super().__init__(home=home)
        self.shelf = shelf
        self.go = threading.Event()
        self.opened = 0

    def open(self, name):
        self.opened += 1
        self.go.wait(10)
        return self.shelf.open(name)


@pytest.fixture
def slow(shelf, home):
    found = Slow(shelf, home)
    yield found
    found.go.set()


def job(text="face", model="tiny"):
    return TranslationJob(model, DECODE, text)


def open_desk(shelf, **changes):
    desk = BatchQueue(shelf, ServeSettings(**({"workers": 1} | changes)), Metrics())
    desk.open()
    return desk


def n_running(desk):
    return sum(len(worker.running) for worker in desk._workers)


def until(condition):
    end = time.perf_counter() + 10
    while not condition():
        assert time.perf_counter() < end, "it did not happen"
        time.sleep(0.01)


def test_what_waits_together_is_translated_together(slow):
    desk = open_desk(slow, batch_texts=8, batch_seconds=0.0)
    first = desk.submit([job()])
    until(lambda: slow.opened == 1)
    rest = desk.submit([job(text) for text in TEXTS])
    slow.go.set()
    assert all(answer.result(20).text is not None for answer in first + rest)
    desk.close()
    assert slow.opened == 3  # one, eight, and the two that are left
    text = desk.metrics.text()
    assert 'regard_batch_texts_bucket{le="1"} 1' in text and "regard_texts_total 11" in text


def test_several_work_at_the_same_time(slow):
    desk = open_desk(slow, workers=3, batch_texts=4, batch_seconds=0.0)
    answers = desk.submit([job(text) for text in TEXTS])
    until(lambda: slow.opened == 3)
    slow.go.set()
    assert [answer.result(20).text for answer in answers] == [
        each.text for each in slow.shelf.open("tiny").translate(TEXTS, DECODE)
    ]
    desk.close()


def test_nothing_waits_without_a_limit(slow):
    desk = open_desk(slow, max_waiting=3)
    desk.submit([job()])
    until(lambda: slow.opened == 1)
    desk.submit([job(), job()])
    with pytest.raises(BusyError, match="2 texts"):
        desk.submit([job(), job()])
    slow.go.set()
    desk.close()


def test_what_nobody_waits_for_is_not_translated(slow):
    desk = open_desk(slow, batch_seconds=0.0)
    first = desk.submit([job()])
    until(lambda: slow.opened == 1)
    given_up, kept = desk.submit([job("hello"), job("bad cab")])
    assert given_up.cancel()
    slow.go.set()
    assert kept.result(20).text and first[0].result(20)
    desk.close()
    assert "regard_dropped_texts_total 1" in desk.metrics.text()


def test_closing_gives_up_what_waits(slow):
    desk = open_desk(slow, batch_texts=1)
    first = desk.submit([job()])
    until(lambda: slow.opened == 1)
    second = desk.submit([job()])
    threading.Timer(0.1, slow.go.set).start()
    desk.close()
    assert first[0].result(1) and second[0].cancelled()


def test_a_model_that_cannot_be_loaded_is_said_to_be_broken_and_no_more(tmp_path, home, caplog):
    folder = make_folder(tmp_path, "broken")
    shelf = new_shelf([folder], home)
    (folder / "model.safetensors").write_bytes(b"nothing")
    desk = open_desk(shelf)
    with pytest.raises(BrokenError, match="'broken' could not be loaded") as said:
        desk.submit([job(model="broken")])[0].result(20)
    desk.close()
    assert str(tmp_path) not in str(said.value) and str(tmp_path) in caplog.text


def test_a_busy_server_says_when_to_come_back(shelf):
    with client_of(shelf, max_waiting=2) as client:
        said = client.post("/translate", json={"q": ["face"] * 3, "source": "zh", "target": "en"})
        assert said.status_code == 503 and said.headers["retry-after"] == "1" and "waiting" in said.json()["error"]
    with client_of(shelf, max_looking=0) as client:
        for path, body in (("/trace", {"text": "a"}), ("/translate/stream", {"text": "a"})):
            assert client.post(path, json=body).status_code == 503
        assert client.get("/positions").status_code == 503


def test_a_client_that_goes_away_takes_its_texts_back(shelf):
    many = {"q": TEXTS * 25, "source": "zh", "target": "en", "beam": 16}
    with client_of(shelf, batch_texts=1, workers=1) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/translate", json=many, timeout=0.3)
        until(lambda: count(client, "regard_waiting_texts") == 0)
        assert count(client, "regard_dropped_texts_total") > 50
        assert client.post("/translate", json={"q": "face", "source": "zh", "target": "en"}).status_code == 200


def test_a_stream_that_nobody_reads_ends(shelf):
    with client_of(shelf) as client:
        with client.stream("POST", "/translate/stream", json={"text": "bad cab. " * 200, "model": "tiny"}) as said:
            assert next(said.iter_lines())
        until(lambda: count(client, "regard_waiting_looks") == 0)


LONG = "jihgfedcba" * 4
PARTS = "bad cab. hello! face. dead bee, a big head! ice age, ice age, ice age, ice."  # of 40 pieces at most


class InSlots(Shelf):
    """A shelf whose Transformers have slots, as all have on a GPU."""

    def __init__(self, folders, home, endless=False):
        super().__init__([str(folder) for folder in folders], home=home)
        for found in map(self.open, self.books):
            plain = packable(found.model)
            if plain is not None:
                found.engine = CudaEngine(plain)
                found.engine.slot_decoder.min_token = EOS + 1 if endless else EOS


@pytest.fixture
def slotted(folders, home):
    return InSlots(folders, home)


@pytest.fixture
def endless(folders, home):
    """Every text is written to its limit."""
    return InSlots(folders, home, endless=True)


class Turns:
    """Steps of schedulers, one for each that is allowed."""

    def __init__(self, monkeypatch):
        self.allowed, self.taken = threading.Semaphore(0), 0
        turn = SlotScheduler.step

        def when_allowed(scheduler):
            self.allowed.acquire(timeout=10)
            found = turn(scheduler)
            self.taken += 1
            return found

        monkeypatch.setattr(SlotScheduler, "step", when_allowed)

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


def job_of_tiny(text, **changes):
    return TranslationJob("tiny", replace(DECODE, **changes), text)


def same(found, expected):
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], rel=1e-4)


def test_a_short_text_that_comes_later_is_answered_before_a_long_one(endless, turns):
    desk, ends = open_desk(endless), []
    (long,) = desk.submit([job_of_tiny(LONG)])
    long.add_done_callback(lambda _: ends.append("long"))
    turns.take(2)
    (short,) = desk.submit([job_of_tiny("a")])
    short.add_done_callback(lambda _: ends.append("short"))
    assert len(desk) == 2
    turns.take(5)  # one may have been under way; the long text needs 12, the short one 3
    assert short.result(1) and ends == ["short"] and not long.done()
    assert turns.taken == 7
    turns.go()
    same([short.result(20), long.result(20)], endless.open("tiny").translate(["a", LONG], DECODE))
    desk.close()


def test_what_is_asked_for_differently_goes_side_by_side(endless, turns):
    desk = open_desk(endless)
    ways = [{}, {"beam": 2, "n_best": 2}, {"method": "greedy", "beam": 1}]
    answers = desk.submit([job_of_tiny(LONG, **way) for way in ways])
    until(lambda: n_running(desk) == 3)
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
    found = [answer.result(20) for answer in desk.submit([job_of_tiny(text) for text in texts])]
    desk.close()
    assert "regard_texts_total 6" in desk.metrics.text()
    same(found, slotted.open("tiny").translate(texts, DECODE))


def test_a_search_that_slots_cannot_do_is_done_as_before(slotted):
    desk, how = open_desk(slotted), replace(DECODE, method="sample", beam=1, seed=3)
    found = [answer.result(20) for answer in desk.submit([TranslationJob("tiny", how, text) for text in TEXTS])]
    desk.close()
    (scheduler,) = desk._workers[0]._schedulers.values()
    assert not scheduler._buckets
    same(found, slotted.open("tiny").translate(TEXTS, how))


def test_a_search_that_fails_harms_no_other(slotted, monkeypatch, caplog):
    begin = SlotPool.begin

    def breaks(self, sentences, ids):
        if self.settings.beam == 2:
            raise RuntimeError("secret: out of memory")
        begin(self, sentences, ids)

    monkeypatch.setattr(SlotPool, "begin", breaks)
    desk = open_desk(slotted)
    good, wrong = desk.submit([job_of_tiny(text) for text in TEXTS]), desk.submit([job_of_tiny(LONG, n_best=4)])
    bad = desk.submit([job_of_tiny(text, beam=2) for text in (PARTS, "a", "face")])
    for answer in bad:
        with pytest.raises(BrokenError, match="the translation failed; the server's log says why"):
            answer.result(20)
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 4 and 3"):
        wrong[0].result(20)
    same([answer.result(20) for answer in good], slotted.open("tiny").translate(TEXTS, DECODE))
    assert "secret: out of memory" in caplog.text
    monkeypatch.undo()
    again = desk.submit([job_of_tiny("face", beam=2)])[0].result(20)
    same([again], slotted.open("tiny").translate("face", replace(DECODE, beam=2)))
    assert len(desk) == 0 and not desk._workers[0]._owners
    desk.close()


def test_an_answer_that_cannot_be_made_harms_no_other(slotted, monkeypatch):
    merge = Translator.merge

    def breaks(self, texts, found, settings):
        if len(texts[0]) > 1:
            raise RuntimeError("secret")
        return merge(self, texts, found, settings)

    monkeypatch.setattr(Translator, "merge", breaks)
    desk = open_desk(slotted)
    bad, good = desk.submit([job_of_tiny(PARTS), job_of_tiny("face")])
    with pytest.raises(BrokenError, match="the server's log says why"):
        bad.result(20)
    assert good.result(20)
    desk.close()


def test_who_goes_away_leaves_the_slots(endless, turns):
    desk = open_desk(endless, batch_texts=1)
    kept, in_slots, also_kept = desk.submit([job_of_tiny(text) for text in (LONG, LONG[1:], LONG[2:])])
    until(lambda: n_running(desk) == 3)
    turns.take(2)
    (scheduler,) = desk._workers[0]._schedulers.values()
    assert scheduler.n_running == 3
    assert in_slots.cancel()
    turns.take(2)  # one may have been under way
    assert scheduler.n_running == 2 and len(desk) == 2
    turns.go()
    found = [answer.result(20) for answer in (kept, also_kept)]
    same(found, endless.open("tiny").translate([LONG, LONG[2:]], DECODE))
    desk.close()
    assert "regard_dropped_texts_total 1" in desk.metrics.text() and "regard_texts_total 2" in desk.metrics.text()


def test_closing_gives_up_what_is_not_over(endless, turns):
    desk = open_desk(endless)
    answers = desk.submit([job_of_tiny(LONG), job_of_tiny(PARTS)])
    until(lambda: n_running(desk) == 2)
    turns.take(2)
    closing = threading.Thread(target=desk.close)
    closing.start()
    until(lambda: desk._closed)
    turns.go()
    closing.join(20)
    assert not closing.is_alive() and not desk._workers[0].thread.is_alive()
    assert turns.taken <= 3, "the turn that is under way is the last"
    for answer in answers:
        with pytest.raises(CancelledError):
            answer.result(1)


def test_texts_in_slots_count_among_those_that_wait(endless, turns):
    desk = open_desk(endless, max_waiting=3)
    desk.submit([job_of_tiny(LONG), job_of_tiny(LONG)])
    until(lambda: n_running(desk) == 2)
    with pytest.raises(BusyError, match="2 texts"):
        desk.submit([job_of_tiny("a"), job_of_tiny("a")])
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
    assert isinstance(translator.engine, CudaEngine)
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
