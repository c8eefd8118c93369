"""Requests that are malformed, huge, slow or incomplete: each gets a clear error and affects no other."""

import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import pytest

from tests.serve.server import client_of

BODY = b'{"q": "bad cab", "source": "zh", "target": "en"}'
LIMITS = {
    "max_body": 2000,
    "max_chars": 50,
    "max_texts": 3,
    "body_seconds": 0.5,
    "head_seconds": 0.5,
    "hosts": ("127.0.0.1", "localhost", "::1"),
}


@pytest.fixture(scope="module")
def strict(models):
    with client_of(models, **LIMITS) as client:
        client.post("/translate", json=json.loads(BODY))  # the model is loaded
        yield client


def talk(client, *parts, pause=0.0, wait=10.0):
    """Send raw bytes, and return all that comes back until the server closes."""
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=wait) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may close first
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        response = b""
        while chunk := connection.recv(65536):
            response += chunk
    return response


def request(body, *headers, path=b"/translate", host=b"127.0.0.1"):
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: " + host, b"Content-Type: application/json", *headers]
    return b"\r\n".join([*lines, b"", body])


def status(response):
    return int(response.split(b" ", 2)[1])


def error(response):
    return json.loads(response.split(b"\r\n\r\n", 1)[1])["error"]


def alive(client):
    assert client.post("/translate", json=json.loads(BODY)).status_code == 200


def test_errors_name_the_limit_that_was_exceeded(strict):
    languages = {"source": "zh", "target": "en"}
    for body, words in (({"q": "a" * 51}, "51"), ({"q": ["a"] * 4}, "got 4"), ({"q": ["a" * 30] * 2}, "60")):
        response = strict.post("/translate", json={**languages, **body})
        assert response.status_code == 413 and words in response.json()["error"]
    for path in ("/trace", "/translate/stream"):
        response = strict.post(path, json={"text": "a" * 51, "model": "tiny"})
        assert response.status_code == 413 and "51" in response.json()["error"]
    assert strict.get("/steps", params={"text": "a" * 51}).status_code == 413


@pytest.mark.parametrize("size", [2001, 10**5, 2 * 10**7])
def test_a_huge_body_is_refused_whether_it_says_its_length_or_not(strict, size):
    for body in (b"x" * size, (b"x" * min(size, 65536) for _ in range(size // 65536 + 1))):
        response = strict.post("/translate", content=body)
        assert response.status_code == 413 and "2000 bytes" in response.json()["error"]
    alive(strict)


def test_a_body_that_claims_to_be_huge_is_refused_before_it_comes(strict):
    response = talk(strict, request(b"x", b"Content-Length: 999999999999"))
    assert status(response) == 413
    alive(strict)


def test_an_incomplete_body_times_out(strict):
    started = time.perf_counter()
    response = talk(strict, request(BODY[:10], b"Content-Length: %d" % len(BODY)))
    assert status(response) == 408 and "0.5 seconds" in error(response)
    assert time.perf_counter() - started < 5
    alive(strict)


def test_a_slow_body_times_out(strict):
    parts = [request(b"", b"Content-Length: %d" % len(BODY)), *(BODY[i : i + 1] for i in range(8))]
    assert status(talk(strict, *parts, pause=0.1)) == 408
    alive(strict)


@pytest.mark.parametrize("sent", [b"P", b"POST /transl", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_incomplete_headers_time_out(strict, sent):
    response = talk(strict, sent)
    assert status(response) == 408 and "0.5 seconds" in error(response)


def test_a_connection_without_a_request_is_closed_without_a_word(strict):
    assert talk(strict, b"") == b""


def test_a_client_that_does_not_read_is_disconnected(strict):
    url = urlsplit(str(strict.base_url))
    request = b"GET /positions?length=512&width=256 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request * 8)  # more than all buffers on the way take
        ended = time.perf_counter() + 20
        while time.perf_counter() < ended:
            time.sleep(0.3)
            try:
                connection.sendall(b"\r\n")
            except ConnectionError:
                break
        else:
            pytest.fail("the server still waits")
    alive(strict)


def test_concurrent_requests_are_limited(models):
    with client_of(models, max_requests=1) as client:
        url = urlsplit(str(client.base_url))
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(request(BODY[:10], b"Content-Length: %d" % len(BODY)))
            time.sleep(0.3)
            response = client.get("/health")
            assert (
                response.status_code == 503
                and response.headers["retry-after"] == "1"
                and "1 requests" in response.json()["error"]
            )


def test_a_client_that_expects_100_is_refused_before_it_sends(strict):
    started = time.perf_counter()
    response = talk(strict, request(b"", b"Content-Length: 99999999", b"Expect: 100-continue"))
    assert status(response) == 413 and time.perf_counter() - started < 1


def test_the_second_request_of_a_connection_may_not_be_half_sent_either(strict):
    whole = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    response = talk(strict, whole, b"GET /hea", pause=0.2)
    assert response.count(b"HTTP/1.1 200") == 1 and response.count(b"HTTP/1.1 408") == 1


def test_a_client_that_disconnects_midway_harms_nobody(strict):
    url = urlsplit(str(strict.base_url))
    for sent in (b"POST /tr", request(BODY[:10], b"Content-Length: %d" % len(BODY))):
        with socket.create_connection((url.hostname, url.port)) as connection:
            connection.sendall(sent)
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
def test_what_is_not_http_is_refused(strict, sent):
    response = talk(strict, sent)
    assert status(response) == 400 and "HTTP" in error(response)
    alive(strict)


def test_other_host_names_are_refused(strict):
    response = talk(
        strict, request(BODY, b"Content-Length: %d" % len(BODY), b"Connection: close", host=b"evil.example")
    )
    assert status(response) == 400 and "evil.example" in error(response)
    for host in (b"localhost:8000", b"[::1]:8000", b"[::1]", b"127.0.0.1"):
        response = talk(strict, request(BODY, b"Content-Length: %d" % len(BODY), b"Connection: close", host=host))
        assert status(response) == 200


def test_many_bad_requests_at_once_do_not_keep_good_ones_waiting(strict):
    url = urlsplit(str(strict.base_url))
    lines = [socket.create_connection((url.hostname, url.port)) for _ in range(100)]
    for connection in lines:
        connection.sendall(request(BODY[:10], b"Content-Length: %d" % len(BODY)))
    started = time.perf_counter()
    alive(strict)
    assert time.perf_counter() - started < 2
    for connection in lines:
        connection.close()


def test_allowed_origins_may_use_the_api(models):
    ours = {"Origin": "https://a.example"}
    with client_of(models, cors=("https://a.example",)) as client:
        assert client.get("/health", headers=ours).headers["access-control-allow-origin"] == "https://a.example"
        assert (
            "access-control-allow-origin" not in client.get("/health", headers={"Origin": "https://b.example"}).headers
        )
        response = client.options("/translate", headers={**ours, "Access-Control-Request-Method": "POST"})
        assert response.status_code == httpx.codes.OK
