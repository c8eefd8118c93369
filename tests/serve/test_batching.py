"""Many clients at once: each gets its own answer, the same as alone, and searches are shared."""

import asyncio
import re
import threading
import time

import httpx
import pytest

from regard.serve.desk import Desk, Job
from regard.serve.errors import BrokenError, BusyError
from regard.serve.metrics import Metrics
from regard.serve.settings import ServeSettings
from regard.serve.shelf import Shelf
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
    return Job(model, DECODE, text)


def open_desk(shelf, **changes):
    desk = Desk(shelf, ServeSettings(**({"workers": 1} | changes)), Metrics())
    desk.open()
    return desk


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
