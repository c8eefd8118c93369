"""Limits, security headers, Prometheus metrics."""

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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.requests import RETRY_SECONDS, failed
from regard.serve.server import ServeSettings

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TEXTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(eq=False)
class Histogram:
    """How many values lie below each bound."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self.counts = self.counts or [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Writes the counts as Prometheus reads them: each bound with all below it."""
        before = f"{labels}," if labels else ""
        counts = list(accumulate(self.counts or [0] * (len(self.bounds) + 1)))
        bounds = [*(f"{bound:g}" for bound in self.bounds), "+Inf"]
        rows = [f'{name}_bucket{{{before}le="{le}"}} {n}' for le, n in zip(bounds, counts, strict=True)]
        named = f"{{{labels}}}" if labels else ""
        return [*rows, f"{name}_sum{named} {self.total:.6f}", f"{name}_count{named} {counts[-1]}"]


class Metrics:
    """All that is counted; any thread may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self._batches = Histogram(TEXTS)
        self._translated = 0
        self._dropped = 0
        self.gauges: dict[str, Callable[[], int]] = {}

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts an answer; a route is a pattern, so that there are few of them."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds.setdefault(route, Histogram(SECONDS)).observe(seconds)

    def together(self, n_texts: int) -> None:
        """Counts texts that are translated together: a batch, or the sentences in slots that take a turn."""
        with self._lock:
            self._batches.observe(float(n_texts))

    def done(self, n_texts: int) -> None:
        """Counts texts that were translated."""
        with self._lock:
            self._translated += n_texts

    def drop(self, n_texts: int) -> None:
        """Counts texts for which nobody waited any more."""
        with self._lock:
            self._dropped += n_texts

    def text(self) -> str:
        """Writes everything down."""
        with self._lock:
            lines = _family("regard_requests_total", "counter", "Answers by route and status.")
            for (method, route, status), n in sorted(self._requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"regard_requests_total{{{labels}}} {n}")
            lines += _family("regard_request_seconds", "histogram", "Time from a request's arrival to its answer.")
            for route, seconds in sorted(self._seconds.items()):
                lines += seconds.lines("regard_request_seconds", f'route="{route}"')
            lines += _family("regard_batch_texts", "histogram", "Texts that were translated together.")
            lines += self._batches.lines("regard_batch_texts")
            for name, n, words in (
                ("regard_texts_total", self._translated, "Texts that were translated."),
                ("regard_dropped_texts_total", self._dropped, "Texts that were given up because nobody waited."),
            ):
                lines += [*_family(name, "counter", words), f"{name} {n}"]
        for name, now in self.gauges.items():
            lines += [*_family(name, "gauge", "Number at this moment."), f"{name} {now()}"]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


PORT = re.compile(r":\d+$")
CLOSE = {"Connection": "close"}
BUSY = {**CLOSE, "Retry-After": RETRY_SECONDS}
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 2**26  # of a body that is refused: who still writes does not read the answer
ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
}


class Border:
    """Reads each body whole before anything else happens, refuses what is too large or too slow, and counts."""

    def __init__(self, app: ASGIApp, settings: ServeSettings, metrics: Metrics):
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.inside = 0  # requests that have no answer yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        started, status = time.perf_counter(), 0

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in ALWAYS.items():
                    headers.setdefault(name, value)
            await send(message)

        self.inside += 1
        try:
            await self._passed(scope, receive, tell)
        finally:
            self.inside -= 1
            self.metrics.request(_method(scope), _route(scope), status, time.perf_counter() - started)

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if self.inside > self.settings.max_requests:
            busy = failed(503, f"{self.inside - 1} requests are here already: come back in a moment", BUSY)
            return await busy(scope, receive, send)
        hosts, host = self.settings.hosts, PORT.sub("", headers.get("host", "")).strip("[]").lower()
        if hosts and host not in hosts:
            refused = failed(400, f"this server is called {' or '.join(hosts)}, got {host!r}", CLOSE)
            return await refused(scope, receive, send)
        try:
            async with asyncio.timeout(self.settings.body_seconds):
                body, more = await self._body(headers, receive)
        except TimeoutError:
            late = failed(408, f"the body must arrive within {self.settings.body_seconds:g} seconds", CLOSE)
            return await late(scope, receive, send)
        if body is None:
            return None  # the client has gone
        if len(body) > self.settings.max_body:
            if more and "expect" not in headers:  # who asks first has not begun to write
                await _drained(receive)
            large = failed(413, f"a body may have {self.settings.max_body} bytes: send several requests", CLOSE)
            return await large(scope, receive, send)
        await self.app(scope, _replayed(body, receive), send)

    async def _body(self, headers: Headers, receive: Receive) -> tuple[bytes | None, bool]:
        """Gives a body, or the beginning of one that is too large, and whether more comes; None where all left."""
        body, most, more = bytearray(), self.settings.max_body, True
        if _length(headers) > most:
            return b" " * (most + 1), True
        while more and len(body) <= most:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None, False
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body), more


async def _drained(receive: Receive) -> None:
    """Reads on for a while, and throws away."""
    n_bytes, more = 0, True
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while more and n_bytes < DRAIN_BYTES:
                message = await receive()
                n_bytes += len(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        pass


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, and then what else happens to the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _length(headers: Headers) -> int:
    said = headers.get("content-length", "0")
    return int(said) if said.isdecimal() else 0


def _method(scope: MutableMapping[str, Any]) -> str:
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}
    return scope["method"] if scope["method"] in known else "other"


def _route(scope: MutableMapping[str, Any]) -> str:
    """Gives the pattern that matched, so that there are few of them."""
    return getattr(scope.get("route"), "path", "none")
