"""Middleware: Prometheus metrics, security headers, limits on requests."""

import asyncio
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve import ServeSettings
from regard.serve.requests import RETRY_SECONDS, error_response

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(eq=False)
class Histogram:
    """Number of values up to each bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of Prometheus' text format, whose buckets are cumulative."""
        before = f"{labels}," if labels else ""
        counts = list(accumulate(self.counts or [0] * (len(self.bounds) + 1)))
        bounds = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        rows = [f'{name}_bucket{{{before}le="{le}"}} {n}' for le, n in zip(bounds, counts, strict=True)]
        named = f"{{{labels}}}" if labels else ""
        return [*rows, f"{name}_sum{named} {self.total:.6f}", f"{name}_count{named} {counts[-1]}"]


class Metrics:
    """Counters and histograms of the server; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(TEXTS)
        self._translated = 0
        self._dropped = 0
        self.gauges: dict[str, Callable[[], int]] = {}

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a response; a route is its pattern, which keeps the number of series small."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def count_batch(self, n_texts: int) -> None:
        """Count a batch: texts translated together, or sentences in slots that take one step."""
        with self._lock:
            self._batches.observe(float(n_texts))

    def count_translated(self, n_texts: int) -> None:
        """Count translated texts."""
        with self._lock:
            self._translated += n_texts

    def count_dropped(self, n_texts: int) -> None:
        """Count texts that were cancelled because their client had disconnected."""
        with self._lock:
            self._dropped += n_texts

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        with self._lock:
            lines = _family("regard_requests_total", "counter", "Responses by route and status.")
            for (method, route, status), n in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"regard_requests_total{{{labels}}} {n}")
            lines += _family(
                "regard_request_seconds", "histogram", "Time from the arrival of a request to the end of its response."
            )
            for route, seconds in sorted(self._seconds.items()):
                lines += seconds.lines("regard_request_seconds", f'route="{route}"')
            lines += _family("regard_batch_texts", "histogram", "Texts translated in one batch.")
            lines += self._batches.lines("regard_batch_texts")
            for name, n, description in (
                ("regard_texts_total", self._translated, "Translated texts."),
                ("regard_dropped_texts_total", self._dropped, "Texts dropped because their client had disconnected."),
            ):
                lines += [*_family(name, "counter", description), f"{name} {n}"]
        for name, gauge in self.gauges.items():
            lines += [*_family(name, "gauge", "Current number."), f"{name} {gauge()}"]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, description: str) -> list[str]:
    return [f"# HELP {name} {description}", f"# TYPE {name} {kind}"]


class MetricsMiddleware:
    """Counts responses and the time that they take."""

    def __init__(self, app: ASGIApp, metrics: Metrics):
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 0

        async def send_counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        finally:
            self.metrics.count_request(_method(scope), _route(scope), status, time.perf_counter() - started)


SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
}


class SecurityHeadersMiddleware:
    """Adds security headers to every response that does not set its own."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)


PORT = re.compile(r":\d+$")
CLOSE = {"Connection": "close"}
BUSY = {**CLOSE, "Retry-After": RETRY_SECONDS}
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 2**26  # of a refused body: a client that is still sending does not read the response


class LimitsMiddleware:
    """Limits concurrent requests, host names, and the size and time of bodies, which it reads before the app runs.

    Without a list of hosts a page of another site could resolve its own name to this address (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings):
        self.app = app
        self.settings = settings
        self.n_running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        self.n_running += 1
        try:
            headers = Headers(scope=scope)
            response = self._refusal(headers)
            if response is None:
                body, response = await self._read_body(headers, receive)
                if body is not None:
                    return await self.app(scope, _replay(body, receive), send)
            if response is not None:  # else the client has disconnected
                await response(scope, receive, send)
        finally:
            self.n_running -= 1

    def _refusal(self, headers: Headers) -> Response | None:
        if self.n_running > self.settings.max_requests:
            message = f"{self.n_running - 1} requests are being processed already: try again in a moment"
            return error_response(503, message, BUSY)
        hosts, host = self.settings.hosts, PORT.sub("", headers.get("host", "")).strip("[]").lower()
        if hosts and host not in hosts:
            return error_response(400, f"the Host header must be {' or '.join(hosts)}, got {host!r}", CLOSE)
        return None

    async def _read_body(self, headers: Headers, receive: Receive) -> tuple[bytes | None, Response | None]:
        """Return the body or the error to respond with; neither if the client has disconnected."""
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                body, more = await self._receive_body(headers, receive)
        except TimeoutError:
            message = f"the body must arrive within {self.settings.body_seconds:g} seconds"
            return None, error_response(408, message, CLOSE)
        if body is None or len(body) <= self.settings.max_body:
            return body, None
        if more and "expect" not in headers:  # a client that expects 100 has not begun to send
            await _drain(receive)
        message = f"the body may have at most {self.settings.max_body} bytes: split it into several requests"
        return None, error_response(413, message, CLOSE)

    async def _receive_body(self, headers: Headers, receive: Receive) -> tuple[bytes | None, bool]:
        """Return the body, or the beginning of one that is too large, and whether more follows."""
        body, max_body, more = bytearray(), self.settings.max_body, True
        if _content_length(headers) > max_body:
            return b" " * (max_body + 1), True
        while more and len(body) <= max_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None, False
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body), more


async def _drain(receive: Receive) -> None:
    """Read and discard the rest of a body, within limits."""
    n_bytes, more = 0, True
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and n_bytes < DRAIN_BYTES:
                message = await receive()
                n_bytes += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        pass


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that delivers the body once, and then the events of the connection."""
    delivered = False

    async def receive_again() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _content_length(headers: Headers) -> int:
    length = headers.get("content-length", "0")
    return int(length) if length.isdecimal() else 0


def _method(scope: MutableMapping[str, Any]) -> str:
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}
    return scope["method"] if scope["method"] in known else "other"


def _route(scope: MutableMapping[str, Any]) -> str:
    """Return the pattern that matched, not the path, which anyone can choose."""
    return getattr(scope.get("route"), "path", "none")
