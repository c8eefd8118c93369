"""Requests that are malformed, huge, slow or half-sent: each gets a clear answer and harms nobody else."""

import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest

from tests.serve.server import client_of

ASK = b'{"q": "bad cab", "source": "zh", "target": "en"}'
LIMITS = {
    "max_body": 2000,
    "max_chars": 50,
    "max_trace_chars": 20,
    "max_texts": 3,
    "body_seconds": 0.5,
    "head_seconds": 0.5,
    "hosts": ("127.0.0.1", "localhost", "::1"),
}


@pytest.fixture(scope="module")
def strict(shelf):
    with client_of(shelf, **LIMITS) as client:
        client.post("/translate", json=json.loads(ASK))  # the model is loaded
        yield client


def talk(client, *parts, pause=0.0, wait=10.0):
    """Sends bytes as they are, and gives all that comes back until the server closes."""
    place = urlsplit(str(client.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=wait) as line:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may have had enough
            for part in parts:
                line.sendall(part)
                time.sleep(pause)
        said = b""
        while chunk := line.recv(65536):
            said += chunk
    return said


def request(body, *headers, path=b"/translate", host=b"127.0.0.1"):
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: " + host, b"Content-Type: application/json", *headers]
    return b"\r\n".join([*lines, b"", body])


def status(said):
    return int(said.split(b" ", 2)[1])


def error(said):
    return json.loads(said.split(b"\r\n\r\n", 1)[1])["error"]


def alive(client):
    assert client.post("/translate", json=json.loads(ASK)).status_code == 200


def test_too_much_is_refused_by_what_it_is_too_much_of(strict):
    ask = {"source": "zh", "target": "en"}
    for body, words in (({"q": "a" * 51}, "51"), ({"q": ["a"] * 4}, "got 4"), ({"q": ["a" * 30] * 2}, "60")):
        said = strict.post("/translate", json={**ask, **body})
        assert said.status_code == 413 and words in said.json()["error"]
    for path in ("/trace", "/translate/stream"):
        said = strict.post(path, json={"text": "a" * 51, "model": "tiny"})
        assert said.status_code == 413 and "51" in said.json()["error"]
    assert strict.get("/steps", params={"text": "a" * 21}).status_code == 413


@pytest.mark.parametrize("size", [2001, 10**5, 2 * 10**7])
def test_a_huge_body_is_refused_whether_it_says_its_length_or_not(strict, size):
    for body in (b"x" * size, (b"x" * min(size, 65536) for _ in range(size // 65536 + 1))):
        said = strict.post("/translate", content=body)
        assert said.status_code == 413 and "2000 bytes" in said.json()["error"]
    alive(strict)


def test_a_body_that_claims_to_be_huge_is_refused_before_it_comes(strict):
    said = talk(strict, request(b"x", b"Content-Length: 999999999999"))
    assert status(said) == 413
    alive(strict)


def test_a_half_sent_body_is_given_up(strict):
    started = time.perf_counter()
    said = talk(strict, request(ASK[:10], b"Content-Length: %d" % len(ASK)))
    assert status(said) == 408 and "0.5 seconds" in error(said)
    assert time.perf_counter() - started < 5
    alive(strict)


def test_a_slow_body_is_given_up(strict):
    parts = [request(b"", b"Content-Length: %d" % len(ASK)), *(ASK[i : i + 1] for i in range(8))]
    assert status(talk(strict, *parts, pause=0.1)) == 408
    alive(strict)


@pytest.mark.parametrize("sent", [b"P", b"POST /transl", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_half_sent_first_lines_are_given_up(strict, sent):
    said = talk(strict, sent)
    assert status(said) == 408 and "0.5 seconds" in error(said)


def test_a_connection_without_a_request_is_closed_without_a_word(strict):
    assert talk(strict, b"") == b""


def test_a_client_that_does_not_read_is_given_up(strict):
    place = urlsplit(str(strict.base_url))
    ask = b"GET /positions?length=512&width=256 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(ask * 8)  # more than all buffers on the way take
        ended = time.perf_counter() + 20
        while time.perf_counter() < ended:
            time.sleep(0.3)
            try:
                line.sendall(b"\r\n")
            except ConnectionError:
                break
        else:
            pytest.fail("the server still waits")
    alive(strict)


def test_there_is_room_for_so_many_requests_and_no_more(shelf):
    with client_of(shelf, max_requests=1) as client:
        place = urlsplit(str(client.base_url))
        with socket.create_connection((place.hostname, place.port)) as line:
            line.sendall(request(ASK[:10], b"Content-Length: %d" % len(ASK)))
            time.sleep(0.3)
            said = client.get("/health")
            assert (
                said.status_code == 503 and said.headers["retry-after"] == "1" and "1 requests" in said.json()["error"]
            )


def test_who_asks_before_sending_much_is_refused_before_it_is_sent(strict):
    started = time.perf_counter()
    said = talk(strict, request(b"", b"Content-Length: 99999999", b"Expect: 100-continue"))
    assert status(said) == 413 and time.perf_counter() - started < 1


def test_the_second_request_of_a_connection_may_not_be_half_sent_either(strict):
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    said = talk(strict, whole, b"GET /hea", pause=0.2)
    assert said.count(b"HTTP/1.1 200") == 1 and said.count(b"HTTP/1.1 408") == 1


def test_a_body_whose_client_goes_away_is_forgotten(strict):
    place = urlsplit(str(strict.base_url))
    for sent in (b"POST /tr", request(ASK[:10], b"Content-Length: %d" % len(ASK))):
        with socket.create_connection((place.hostname, place.port)) as line:
            line.sendall(sent)
    alive(strict)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n",
        b"good day\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 20_000,
        request(b"", b"Content-Length: -1"),
        request(b"zz\r\n", b"Transfer-Encoding: chunked"),
    ],
)
def test_what_is_no_http_is_refused(strict, sent):
    said = talk(strict, sent)
    assert status(said) == 400 and "HTTP" in error(said)
    alive(strict)


def test_who_calls_by_another_name_is_refused(strict):
    said = talk(strict, request(ASK, b"Content-Length: %d" % len(ASK), b"Connection: close", host=b"evil.example"))
    assert status(said) == 400 and "evil.example" in error(said)
    for host in (b"localhost:8000", b"[::1]:8000", b"[::1]", b"127.0.0.1"):
        said = talk(strict, request(ASK, b"Content-Length: %d" % len(ASK), b"Connection: close", host=host))
        assert status(said) == 200


def test_many_bad_requests_at_once_do_not_keep_good_ones_waiting(strict):
    place = urlsplit(str(strict.base_url))
    lines = [socket.create_connection((place.hostname, place.port)) for _ in range(100)]
    for line in lines:
        line.sendall(request(ASK[:10], b"Content-Length: %d" % len(ASK)))
    started = time.perf_counter()
    alive(strict)
    assert time.perf_counter() - started < 2
    for line in lines:
        line.close()


def test_origins_that_were_named_may_ask(shelf):
    ours = {"Origin": "https://a.example"}
    with client_of(shelf, cors=("https://a.example",)) as client:
        assert client.get("/health", headers=ours).headers["access-control-allow-origin"] == "https://a.example"
        assert (
            "access-control-allow-origin" not in client.get("/health", headers={"Origin": "https://b.example"}).headers
        )
        said = client.options("/translate", headers={**ours, "Access-Control-Request-Method": "POST"})
        assert said.status_code == httpx.codes.OK
