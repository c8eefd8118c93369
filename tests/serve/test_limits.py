"""Requests that are malformed, huge, slow or incomplete: each gets a clear error and affects no other."""

import asyncio
import errno
import gc
import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from urllib.parse import urlsplit

import httpx
import pytest

from regard.serve import ServeSettings, pytorch, server
from regard.serve.limits import LimitsMiddleware, TokenBuckets
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


def talk(client, *parts, pause=0.0, wait=120.0):
    """Send raw bytes, and return all that comes back until the server closes."""
    url = urlsplit(str(client.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=wait) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # the server may close first
            for part in parts:
                connection.sendall(part)
                time.sleep(pause)
        return read_all(connection)


def read_all(connection):
    """Return all that comes until the server closes."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


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
        response = strict.post("/translate", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 413 and "2000 bytes" in response.json()["error"]
    alive(strict)


def test_a_body_that_claims_to_be_huge_is_refused_before_it_comes(strict):
    response = talk(strict, request(b"x", b"Content-Length: 999999999999"))
    assert status(response) == 413
    alive(strict)


def test_an_incomplete_body_times_out(strict):
    response = talk(strict, request(BODY[:10], b"Content-Length: %d" % len(BODY)))
    assert status(response) == 408 and "0.5 seconds" in error(response)
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
    with socket.create_connection((url.hostname, url.port), timeout=120) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request * 8)  # more than all buffers on the way take
        ended = time.perf_counter() + 60
        while time.perf_counter() < ended:
            time.sleep(0.3)
            try:
                connection.sendall(b"\r\n")
            except ConnectionError:
                break
        else:
            pytest.fail("the server still waits")
    alive(strict)


@pytest.fixture
def held(monkeypatch):
    """A request to /positions that has begun, and ends when it is told to: (begun, end)."""
    begun, end = Event(), Event()

    def wait(*_):
        begun.set()
        end.wait(60)
        return {}

    monkeypatch.setattr(pytorch, "position_lesson", wait)
    yield begun, end
    end.set()


def test_concurrent_requests_are_limited_but_for_health(models, held):
    begun, end = held
    with client_of(models, max_requests=1) as client, ThreadPoolExecutor() as pool:
        slow = pool.submit(httpx.get, f"{client.base_url}/positions", timeout=120)
        assert begun.wait(60)
        response = client.get("/languages")
        assert response.status_code == 503 and response.headers["retry-after"] == "1"
        assert "1 requests" in response.json()["error"]
        assert client.get("/health").status_code == 200
        end.set()
        assert slow.result().status_code == 200


def test_bodies_that_never_come_keep_nobody_from_the_server(models):
    with client_of(models, max_requests=20, max_bodies=8) as client:
        url = urlsplit(str(client.base_url))
        lines = [socket.create_connection((url.hostname, url.port)) for _ in range(40)]
        for connection in lines:
            connection.sendall(request(BODY[:10], b"Content-Length: %d" % len(BODY)))
        alive(client)
        assert client.get("/health").status_code == 200
        given_up = read_all(lines[0])
        assert status(given_up) == 408 and "sooner if many are awaited" in error(given_up)
        for connection in lines:
            connection.close()


def test_a_client_that_closes_its_own_side_gets_its_response(strict):
    url = urlsplit(str(strict.base_url))
    with socket.create_connection((url.hostname, url.port), timeout=120) as connection:
        connection.sendall(request(BODY, b"Content-Length: %d" % len(BODY)))
        connection.shutdown(socket.SHUT_WR)
        response = read_all(connection)
    last = response[response.rindex(b"HTTP/1.1 ") :]
    assert status(last) == 200 and b"translatedText" in last


def test_a_request_line_that_is_too_long_is_refused(strict):
    response = talk(strict, b"GET /steps?text=" + b"x" * 70_000)
    assert status(response) == 414 and "16384 bytes" in error(response)


def test_clients_that_leave_are_not_logged(models, caplog, capfd):
    with client_of(models, batch_texts=1, workers=1) as client:
        url = urlsplit(str(client.base_url))
        for path, body in (
            (b"/translate", {"q": ["bad cab. " * 20] * 20, "source": "zh", "target": "en", "beam": 16}),
            (b"/translate", {"q": "a", "source": "fr", "target": "en"}),
            (b"/translate/stream", {"text": "bad cab. " * 200, "model": "tiny"}),
            (b"/trace", {"text": "bad cab", "model": "nobody"}),
        ):
            sent = json.dumps(body).encode()
            with socket.create_connection((url.hostname, url.port)) as connection:
                connection.sendall(request(sent, b"Content-Length: %d" % len(sent), path=path))
                time.sleep(0.05)
        time.sleep(0.5)
        alive(client)
    gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "never retrieved" not in capfd.readouterr().err


def test_connections_beyond_the_limit_are_told_so(models, monkeypatch):
    monkeypatch.setattr(server, "connection_limit", lambda: 3)
    with client_of(models) as client:
        url = urlsplit(str(client.base_url))
        lines = [socket.create_connection((url.hostname, url.port), timeout=120) for _ in range(4)]
        response = read_all(lines[-1])
        assert status(response) == 503 and "3 connections" in error(response)
        for connection in lines:
            connection.close()
        time.sleep(0.1)
        alive(client)


def test_a_server_that_runs_out_of_files_says_so_in_one_line(caplog):
    loop, log = asyncio.new_event_loop(), server.LoopErrorLog()
    for _ in range(3):
        log(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "Too many open files")})
    loop.close()
    assert [record.getMessage() for record in caplog.records] == [
        "no connections are accepted for a second: Too many open files"
    ]


def test_those_who_wait_are_told_that_the_server_stops(models, monkeypatch, held):
    begun, end = held
    monkeypatch.setattr(server, "GRACE_SECONDS", 1)
    monkeypatch.setattr(server, "RESPONSE_SECONDS", 0.8)
    with ThreadPoolExecutor() as pool:
        with client_of(models) as client:
            slow = pool.submit(httpx.get, f"{client.base_url}/positions", timeout=120)
            slow.add_done_callback(lambda _: end.set())
            assert begun.wait(60)
        response = slow.result()
    assert response.status_code == 503 and "stopping" in response.json()["error"]


def test_a_server_with_keys_wants_one(models):
    body = json.loads(BODY)
    with client_of(models, api_keys=("secret", "other")) as client:
        for path in ("/health", "/languages", "/openapi.json"):
            assert client.get(path).status_code == 200
        refused = client.post("/translate", json=body)
        assert refused.status_code == 403 and "Authorization: Bearer" in refused.json()["error"]
        for wrong in ("secre", "secret2", "ключ"):
            assert client.post("/translate", json={**body, "api_key": wrong}).status_code == 403
        assert client.get("/positions").status_code == 403
        assert client.get("/positions", params={"api_key": "other"}).status_code == 200
        assert client.post("/translate", json={**body, "api_key": "secret"}).status_code == 200
        assert client.post("/translate", data={**body, "api_key": "secret"}).status_code == 200
        assert client.post("/translate", json=body, headers={"Authorization": "Bearer other"}).status_code == 200


def test_forms_of_other_sites_are_refused(strict):
    form = json.loads(BODY)
    assert strict.post("/translate", data=form).status_code == 200
    own = f"http://{strict.base_url.netloc.decode()}"
    assert strict.post("/translate", data=form, headers={"Origin": own}).status_code == 200
    response = strict.post("/translate", data=form, headers={"Origin": "https://evil.example"})
    assert response.status_code == 403 and "https://evil.example" in response.json()["error"]


def test_a_client_may_ask_only_so_often(models):
    buckets = TokenBuckets(per_minute=3.0, max_clients=2)
    assert [buckets.take("a", now) for now in (0.0, 0.0, 0.0, 0.0, 19.0, 21.0, 22.0)] == [
        True,
        True,
        True,
        False,
        False,
        True,
        False,
    ]
    assert buckets.take("b", 22.0) and buckets.take("c", 22.0) and buckets.take("a", 23.0), "the oldest is forgotten"
    with client_of(models, requests_per_minute=2.0) as client:
        assert [client.get("/languages").status_code for _ in range(3)] == [200, 200, 429]
        assert "127.0.0.1" in client.get("/languages").json()["error"] and client.get("/health").status_code == 200


def test_metrics_may_be_for_this_machine_alone():
    app = LimitsMiddleware(lambda *_: pytest.fail("it must not be asked"), ServeSettings(local_metrics=True))
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "client": ("192.0.2.7", 5)}
    asyncio.run(app(scope, None, send))
    assert sent[0]["status"] == 403 and b"192.0.2.7" in sent[1]["body"]


def test_a_client_that_expects_100_is_refused_before_it_sends(strict):
    response = talk(strict, request(b"", b"Content-Length: 99999999", b"Expect: 100-continue"))
    assert status(response) == 413  # one that waited for the body would be 408


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
    alive(strict)
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
