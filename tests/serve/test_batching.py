"""Many clients at once: each gets the same translation as alone, in shared batches.

With slots, texts start while others are being translated, and finish on their own.
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
from regard.engine.native import NativeEngine
from regard.engine.pack import packable
from regard.engine.slots import SlotPool
from regard.padding import EOS
from regard.pipeline.live import LiveText
from regard.pipeline.translator import Translation, Translator
from regard.serve import BusyError, InternalError, ServeSettings
from regard.serve.batching import BatchQueue, TranslationJob
from regard.serve.middleware import Metrics
from regard.serve.models import ModelRegistry
from tests.serve.server import DECODE, TEXTS, client_of, lines_of, make_folder, make_registry


def count(client, name):
    return int(re.search(rf"^{name} (\d+)$", client.get("/metrics").text, re.M)[1])


def post_all(url, bodies):
    """Send all requests at once, and return the responses in their order."""

    async def run():
        limits = httpx.Limits(max_connections=len(bodies))
        async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
            return await asyncio.gather(*(client.post("/translate", json=body) for body in bodies))

    return asyncio.run(run())


def test_64_clients_get_their_own_translations(models, translator):
    texts = [f"{text} {'abcdefghij'[i // 10]}" for i, text in enumerate(TEXTS * 7)][:64]
    assert len(set(texts)) == 64
    with client_of(models, batch_seconds=0.05) as client:
        found = post_all(client.base_url, [{"q": text, "source": "zh", "target": "en"} for text in texts])
        batches = count(client, "regard_batch_texts_count")
    assert [response.json()["translatedText"] for response in found] == [
        each.text for each in translator.translate(texts, DECODE)
    ]
    assert batches < 32


def test_different_models_and_settings_are_not_mixed(models, client):
    bodies = [{"q": text, "source": "zh", "target": "en", "beam": 1 + i % 3} for i, text in enumerate(TEXTS * 2)]
    bodies += [{"q": text, "source": "en", "target": "zh", "alternatives": i % 2} for i, text in enumerate(TEXTS)]
    alone = [client.post("/translate", json=body).json() for body in bodies]
    together = [response.json() for response in post_all(client.base_url, bodies)]
    assert together == alone


def test_a_text_that_is_too_long_affects_no_other(client):
    texts = ["bad cab", "a" * 41, "hello"]
    found = post_all(client.base_url, [{"q": text, "source": "zh", "target": "en"} for text in texts])
    assert [response.status_code for response in found] == [200, 200, 200]
    alone = [client.post("/translate", json={"q": text, "source": "zh", "target": "en"}) for text in texts]
    assert [response.json() for response in found] == [response.json() for response in alone]


class SlowRegistry(ModelRegistry):
    """A registry whose models open on a signal."""

    def __init__(self, models, home):
        super().__init__(home=home)
        self.models = models
        self.go = threading.Event()
        self.opened = 0

    def open(self, name):
        self.opened += 1
        self.go.wait(10)
        return self.models.open(name)


@pytest.fixture
def slow(models, home):
    found = SlowRegistry(models, home)
    yield found
    found.go.set()


def job(text="face", model="tiny"):
    return TranslationJob(model, DECODE, text)


def open_queue(models, **changes):
    queue = BatchQueue(models, ServeSettings(**({"workers": 1} | changes)), Metrics())
    queue.open()
    return queue


def n_running(queue):
    return sum(len(worker.running) for worker in queue._workers)


def until(condition):
    end = time.perf_counter() + 60
    while not condition():
        assert time.perf_counter() < end, "timed out"
        time.sleep(0.01)


def test_waiting_texts_are_batched(slow):
    queue = open_queue(slow, batch_texts=8, batch_seconds=0.0)
    first = queue.submit([job()])
    until(lambda: slow.opened == 1)
    rest = queue.submit([job(text) for text in TEXTS])
    slow.go.set()
    assert all(answer.result(20).text is not None for answer in first + rest)
    queue.close()
    assert slow.opened == 3  # one, eight, and the two that are left
    text = queue.metrics.text()
    assert 'regard_batch_texts_bucket{le="1"} 1' in text and "regard_texts_total 11" in text


def test_workers_run_concurrently(slow):
    queue = open_queue(slow, workers=3, batch_texts=4, batch_seconds=0.0)
    answers = queue.submit([job(text) for text in TEXTS])
    until(lambda: slow.opened == 3)
    slow.go.set()
    assert [answer.result(20).text for answer in answers] == [
        each.text for each in slow.models.open("tiny").translate(TEXTS, DECODE)
    ]
    queue.close()


def test_the_queue_is_bounded(slow):
    queue = open_queue(slow, max_waiting=3)
    queue.submit([job()])
    until(lambda: slow.opened == 1)
    queue.submit([job(), job()])
    with pytest.raises(BusyError, match="2 texts"):
        queue.submit([job(), job()])
    slow.go.set()
    queue.close()


def test_cancelled_texts_are_not_translated(slow):
    queue = open_queue(slow, batch_seconds=0.0)
    first = queue.submit([job()])
    until(lambda: slow.opened == 1)
    cancelled, other = queue.submit([job("hello"), job("bad cab")])
    assert cancelled.cancel()
    slow.go.set()
    assert other.result(20).text and first[0].result(20)
    queue.close()
    assert "regard_dropped_texts_total 1" in queue.metrics.text()


def test_closing_cancels_waiting_texts(slow):
    queue = open_queue(slow, batch_texts=1)
    first = queue.submit([job()])
    until(lambda: slow.opened == 1)
    second = queue.submit([job()])
    threading.Timer(0.1, slow.go.set).start()
    queue.close()
    assert first[0].result(1) and second[0].cancelled()


def test_a_model_that_cannot_be_loaded_is_reported_without_its_path(tmp_path, home, caplog):
    folder = make_folder(tmp_path, "broken")
    models = make_registry([folder], home)
    (folder / "model.safetensors").write_bytes(b"nothing")
    queue = open_queue(models)
    with pytest.raises(InternalError, match="could not load the model 'broken'") as response:
        queue.submit([job(model="broken")])[0].result(20)
    queue.close()
    assert str(tmp_path) not in str(response.value) and str(tmp_path) in caplog.text


def test_a_busy_server_says_when_to_retry(models):
    with client_of(models, max_waiting=2) as client:
        response = client.post("/translate", json={"q": ["face"] * 3, "source": "zh", "target": "en"})
        assert (
            response.status_code == 503
            and response.headers["retry-after"] == "1"
            and "waiting" in response.json()["error"]
        )
    with client_of(models, max_jobs=0) as client:
        for path, body in (("/trace", {"text": "a"}), ("/translate/stream", {"text": "a"})):
            assert client.post(path, json=body).status_code == 503
        assert client.get("/positions").status_code == 503


def test_texts_of_a_client_that_disconnects_are_cancelled(models):
    many = {"q": TEXTS * 25, "source": "zh", "target": "en", "beam": 16}
    with client_of(models, batch_texts=1, workers=1) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post("/translate", json=many, timeout=0.3)
        until(lambda: count(client, "regard_waiting_texts") == 0)
        assert count(client, "regard_dropped_texts_total") > 50
        assert client.post("/translate", json={"q": "face", "source": "zh", "target": "en"}).status_code == 200


def test_a_stream_ends_when_its_client_disconnects(models):
    with client_of(models) as client:
        with client.stream("POST", "/translate/stream", json={"text": "bad cab. " * 200, "model": "tiny"}) as response:
            assert next(response.iter_lines())
        until(lambda: count(client, "regard_waiting_looks") == 0)


def test_a_short_text_does_not_wait_for_a_long_one_before_it(slow):
    queue, ends = open_queue(slow, batch_seconds=0.0), []
    (long,) = queue.submit([job("bad cab. hello! face. " * 400)])
    until(lambda: slow.opened == 1)
    (short,) = queue.submit([job("a")])
    for name, answer in (("long", long), ("short", short)):
        answer.add_done_callback(lambda _, name=name: ends.append(name))
    slow.go.set()
    assert long.result(20) and ends == ["short", "long"]
    queue.close()


def test_texts_are_taken_from_each_request_in_turn(slow):
    queue, ends, many = open_queue(slow, batch_texts=2, batch_seconds=0.0), [], object()
    queue.submit([job()])
    until(lambda: slow.opened == 1)
    answers = queue.submit([replace(job(text), turn=many) for text in TEXTS]) + queue.submit([job("a")])
    for number, answer in enumerate(answers):
        answer.add_done_callback(lambda _, number=number: ends.append(number))
    slow.go.set()
    assert all(answer.result(20) for answer in answers)
    assert ends.index(len(TEXTS)) <= 1, "one of the other request may be before it"
    queue.close()


def test_the_rest_of_a_long_text_is_not_translated_when_nobody_waits(slow, monkeypatch):
    searched, search = [], NativeEngine.search_batch

    def count_searched(self, sources, *rest):
        searched.extend(sources)
        if len(searched) < 400:
            long.cancel()
        return search(self, sources, *rest)

    monkeypatch.setattr(NativeEngine, "search_batch", count_searched)
    queue = open_queue(slow, batch_seconds=0.0)
    (long,) = queue.submit([job("bad cab. hello! face. " * 400)])
    slow.go.set()
    until(lambda: len(queue) == 0)
    queue.close()
    assert 0 < len(searched) < 400


def test_texts_of_too_many_sentences_are_refused_at_once(models):
    with client_of(models, max_hypotheses=30) as client:
        for path, text in (("/translate", "q"), ("/trace", "text"), ("/translate/stream", "text")):
            body = {text: "bad. " * 11, "source": "zh", "target": "en"}
            response = client.post(path, json=body)
            assert response.status_code == 413 and "at most 10 sentences with a beam of 3, got 11" in response.text
            assert client.post(path, json={**body, "beam": 2}).status_code == 200


def test_long_texts_without_sentences_count_as_many(models):
    with client_of(models) as client:
        response = client.post("/translate", json={"q": ". " * 9999, "source": "zh", "target": "en", "beam": 16})
        assert response.status_code == 413 and "at most 625 sentences with a beam of 16, got 1249" in response.text


def test_work_that_takes_too_long_is_given_up(models, monkeypatch):
    monkeypatch.setattr(NativeEngine, "search_batch", lambda *_: time.sleep(1) or [])
    with client_of(models, max_seconds=0.2) as client:
        response = client.post("/translate", json={"q": "bad cab", "source": "zh", "target": "en"})
        assert response.status_code == 504 and "0.2 seconds" in response.json()["error"]
    monkeypatch.setattr("regard.serve.routes_translate.trace_part", lambda *_: time.sleep(0.5))
    with client_of(models, max_seconds=0.2) as client:
        assert client.post("/trace", json={"text": "bad cab", "model": "tiny"}).status_code == 504


def test_a_stream_that_takes_too_long_ends_with_a_word(models, monkeypatch):
    def endless(self, on_step):
        while True:
            on_step(Translation("a", 0.0, [], [], []))
            time.sleep(0.02)

    monkeypatch.setattr(LiveText, "follow", endless)
    with client_of(models, max_seconds=0.3) as client:
        lines = lines_of(client.post("/translate/stream", json={"text": "bad cab", "model": "tiny"}))
        assert lines[0]["text"] == "a" and lines[-1]["done"] and "0.3 seconds" in lines[-1]["error"]
        until(lambda: count(client, "regard_waiting_looks") == 0)


LONG = "jihgfedcba" * 4
PARTS = "bad cab. hello! face. dead bee, a big head! ice age, ice age, ice age, ice."  # of at most 40 tokens


class SlotRegistry(ModelRegistry):
    """A registry whose Transformers decode in slots, as on a GPU."""

    def __init__(self, folders, home, endless=False):
        super().__init__([str(folder) for folder in folders], home=home)
        for found in map(self.open, self.entries):
            plain = packable(found.model)
            if plain is not None:
                found.engine = CudaEngine(plain)
                found.engine.slot_decoder.min_token = EOS + 1 if endless else EOS


@pytest.fixture
def slotted(folders, home):
    return SlotRegistry(folders, home)


@pytest.fixture
def endless(folders, home):
    """Every translation has the maximum length."""
    return SlotRegistry(folders, home, endless=True)


class StepControl:
    """Lets schedulers step only as often as allowed."""

    def __init__(self, monkeypatch):
        self.allowed, self.taken = threading.Semaphore(0), 0
        step = SlotScheduler.step

        def when_allowed(scheduler):
            self.allowed.acquire(timeout=10)
            done = step(scheduler)
            self.taken += 1
            return done

        monkeypatch.setattr(SlotScheduler, "step", when_allowed)

    def take(self, n=1):
        want = self.taken + n
        self.allowed.release(n)
        until(lambda: self.taken == want)

    def go(self):
        self.allowed.release(10_000)


@pytest.fixture
def steps(monkeypatch):
    control = StepControl(monkeypatch)
    yield control
    control.go()


def job_of_tiny(text, **changes):
    return TranslationJob("tiny", replace(DECODE, **changes), text)


def same(found, expected):
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.score for each in found] == pytest.approx([each.score for each in expected], rel=1e-4)


def test_a_later_short_text_finishes_before_a_long_one(endless, steps):
    queue, ends = open_queue(endless), []
    (long,) = queue.submit([job_of_tiny(LONG)])
    long.add_done_callback(lambda _: ends.append("long"))
    steps.take(2)
    (short,) = queue.submit([job_of_tiny("a")])
    short.add_done_callback(lambda _: ends.append("short"))
    assert len(queue) == 2
    steps.take(5)  # one may have been under way; the long text needs 12, the short one 3
    assert short.result(1) and ends == ["short"] and not long.done()
    assert steps.taken == 7
    steps.go()
    same([short.result(20), long.result(20)], endless.open("tiny").translate(["a", LONG], DECODE))
    queue.close()


def test_different_settings_run_side_by_side(endless, steps):
    queue = open_queue(endless)
    ways = [{}, {"beam": 2, "n_best": 2}, {"method": "greedy", "beam": 1}]
    answers = queue.submit([job_of_tiny(LONG, **way) for way in ways])
    until(lambda: n_running(queue) == 3)
    steps.take(11)
    assert not any(answer.done() for answer in answers)
    steps.go()
    found = [answer.result(20) for answer in answers]
    queue.close()
    translator = endless.open("tiny")
    same(found, [translator.translate(LONG, replace(DECODE, **way))[0] for way in ways])
    assert [len(each.alternatives) for each in found] == [1, 2, 1]


def test_texts_of_several_sentences_or_none_are_merged(slotted):
    texts = [PARTS, "", LONG, "  ", "a", PARTS[9:]]
    queue = open_queue(slotted)
    found = [answer.result(20) for answer in queue.submit([job_of_tiny(text) for text in texts])]
    queue.close()
    assert "regard_texts_total 6" in queue.metrics.text()
    same(found, slotted.open("tiny").translate(texts, DECODE))


def test_sampling_does_not_use_slots(slotted):
    queue, how = open_queue(slotted), replace(DECODE, method="sample", beam=1, seed=3)
    found = [answer.result(20) for answer in queue.submit([TranslationJob("tiny", how, text) for text in TEXTS])]
    queue.close()
    (scheduler,) = queue._workers[0]._schedulers.values()
    assert not scheduler._buckets
    same(found, slotted.open("tiny").translate(TEXTS, how))


def test_a_failing_search_affects_no_other(slotted, monkeypatch, caplog):
    begin = SlotPool.begin

    def breaks(self, sentences, ids):
        if self.settings.beam == 2:
            raise RuntimeError("secret: out of memory")
        begin(self, sentences, ids)

    monkeypatch.setattr(SlotPool, "begin", breaks)
    queue = open_queue(slotted)
    good, wrong = queue.submit([job_of_tiny(text) for text in TEXTS]), queue.submit([job_of_tiny(LONG, n_best=4)])
    bad = queue.submit([job_of_tiny(text, beam=2) for text in (PARTS, "a", "face")])
    for answer in bad:
        with pytest.raises(InternalError, match="the translation failed; see the server's log"):
            answer.result(20)
    with pytest.raises(ValueError, match="n_best must lie between 1 and beam, got 4 and 3"):
        wrong[0].result(20)
    same([answer.result(20) for answer in good], slotted.open("tiny").translate(TEXTS, DECODE))
    assert "secret: out of memory" in caplog.text
    monkeypatch.undo()
    again = queue.submit([job_of_tiny("face", beam=2)])[0].result(20)
    same([again], slotted.open("tiny").translate("face", replace(DECODE, beam=2)))
    assert len(queue) == 0 and not queue._workers[0]._owners
    queue.close()


def test_a_failing_merge_affects_no_other(slotted, monkeypatch):
    merge = Translator.merge

    def breaks(self, texts, found, settings):
        if len(texts[0].parts) > 1:
            raise RuntimeError("secret")
        return merge(self, texts, found, settings)

    monkeypatch.setattr(Translator, "merge", breaks)
    queue = open_queue(slotted)
    bad, good = queue.submit([job_of_tiny(PARTS), job_of_tiny("face")])
    with pytest.raises(InternalError, match="see the server's log"):
        bad.result(20)
    assert good.result(20)
    queue.close()


def test_cancelled_texts_leave_their_slots(endless, steps):
    queue = open_queue(endless, batch_texts=1)
    first, cancelled, third = queue.submit([job_of_tiny(text) for text in (LONG, LONG[1:], LONG[2:])])
    until(lambda: n_running(queue) == 3)
    steps.take(2)
    (scheduler,) = queue._workers[0]._schedulers.values()
    assert scheduler.n_running == 3
    assert cancelled.cancel()
    steps.take(2)  # one may have been under way
    assert scheduler.n_running == 2 and len(queue) == 2
    steps.go()
    found = [answer.result(20) for answer in (first, third)]
    same(found, endless.open("tiny").translate([LONG, LONG[2:]], DECODE))
    queue.close()
    assert "regard_dropped_texts_total 1" in queue.metrics.text() and "regard_texts_total 2" in queue.metrics.text()


def test_closing_cancels_unfinished_texts(endless, steps):
    queue = open_queue(endless)
    answers = queue.submit([job_of_tiny(LONG), job_of_tiny(PARTS)])
    until(lambda: n_running(queue) == 2)
    steps.take(2)
    closing = threading.Thread(target=queue.close)
    closing.start()
    until(lambda: queue._closed)
    steps.go()
    closing.join(20)
    assert not closing.is_alive() and not queue._workers[0].thread.is_alive()
    assert steps.taken <= 3, "the current step is the last"
    for answer in answers:
        with pytest.raises(CancelledError):
            answer.result(1)


def test_texts_in_slots_count_as_waiting(endless, steps):
    queue = open_queue(endless, max_waiting=3)
    queue.submit([job_of_tiny(LONG), job_of_tiny(LONG)])
    until(lambda: n_running(queue) == 2)
    with pytest.raises(BusyError, match="2 texts"):
        queue.submit([job_of_tiny("a"), job_of_tiny("a")])
    steps.go()
    queue.close()


def test_many_clients_of_models_with_and_without_slots(slotted):
    ways = [{"beam": 1}, {}, {"alternatives": 1}, {"beam": 2}]
    bodies = [{"q": text, "source": "zh", "target": "en", **ways[i % 4]} for i, text in enumerate(TEXTS * 4)]
    bodies += [{"q": TEXTS[i:], "source": "en", "target": "zh"} for i in range(4)]
    bodies += [{"q": [PARTS, "", LONG], "source": "zh", "target": "en"}]
    with client_of(slotted) as client:
        bad = [{"q": "a", "source": "zh", "target": "en", "beam": 1000}]
        together = post_all(client.base_url, bodies + bad)
        assert [response.status_code for response in together] == [200] * len(bodies) + [400]
        n_texts = count(client, "regard_texts_total")
    assert n_texts == 40 + 10 + 9 + 8 + 7 + 3
    translator = slotted.open("tiny")
    assert isinstance(translator.engine, CudaEngine)
    for response, text in zip(together[1:40:4], (TEXTS * 4)[1::4], strict=True):
        assert response.json()["translatedText"] == translator.translate(text, DECODE)[0].text
    whole = translator.translate([PARTS, "", LONG], DECODE)
    assert together[-2].json()["translatedText"] == [each.text for each in whole]
    with client_of(slotted) as client:
        assert [client.post("/translate", json=body).json() for body in bodies] == [
            response.json() for response in together[:-1]
        ]


def test_traces_and_streams_work_beside_the_slots(slotted):
    with client_of(slotted) as client:
        response = client.post("/translate", json={"q": "face", "source": "zh", "target": "en"}).json()[
            "translatedText"
        ]
        assert client.post("/trace", json={"text": "face", "model": "tiny"}).json()["output"] == response
        lines = client.post("/translate/stream", json={"text": "face", "model": "tiny"}).text.splitlines()
        assert response in lines[-1]
