"""Middleware: Prometheus metrics and security headers."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from threading import Lock
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def _method(scope: MutableMapping[str, Any]) -> str:
    known = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}
    return scope["method"] if scope["method"] in known else "other"


def _route(scope: MutableMapping[str, Any]) -> str:
    """Return the pattern that matched, not the path, which anyone can choose."""
    return getattr(scope.get("route"), "path", "none")
