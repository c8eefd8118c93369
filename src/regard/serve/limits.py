"""Who may ask, how much and how often: host names, keys, rates, kinds of bodies, their size and time."""

import asyncio
import hmac
import json
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve import ServeSettings
from regard.serve.requests import FORM, RETRY_SECONDS, error_response, media_type

LOOPBACK = ("127.0.0.1", "localhost", "::1")
JSON = "application/json"
PORT = re.compile(r":\d+$")
CLOSE = {"Connection": "close"}
BUSY = {**CLOSE, "Retry-After": RETRY_SECONDS}
DRAIN_SECONDS, DRAIN_BYTES = 2.0, 2**26  # of a refused body: a client that is still sending does not read the response
# What needs no key, as in LibreTranslate: the page's own files, and what describes the server.
WITHOUT_KEY = re.compile(r"/|/docs|/health|/languages|/openapi\.json|/assets/.*|/[^/]+\.[^/]+")


class LimitsMiddleware:
    """Limits requests, and reads bodies before the app runs.

    Without a list of hosts a page of another site could resolve its own name to this address (DNS rebinding); with
    bodies of any type, it could send one without asking (text/plain needs no permission of ours).
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings):
        self.app = app
        self.settings = settings
        self.n_running = 0
        self.bodies = PendingBodies(settings.max_bodies, settings.max_requests)
        self.rates = None if settings.requests_per_minute is None else TokenBuckets(settings.requests_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers, body = Headers(scope=scope), b""
        response = self._refusal(scope, headers)
        if response is None and _has_body(headers):
            body, response = await self._read_body(scope, headers, receive)
        if response is None and body is not None:
            response = self._busy(scope) or self._without_key(scope, headers, body)
        if response is not None:
            return await response(scope, receive, send)
        if body is None:  # the client has disconnected
            return None
        self.n_running += 1
        try:
            return await self.app(scope, _replay(body, receive), send)
        finally:
            self.n_running -= 1

    def _busy(self, scope: Scope) -> Response | None:
        if scope["path"] == "/health" or self._is_apart(scope) or self.n_running < self.settings.max_requests:
            return None
        return error_response(
            503, f"{self.n_running} requests are being processed already: try again in a moment", BUSY
        )

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        hosts, host = self.settings.hosts, PORT.sub("", headers.get("host", "")).strip("[]").lower()
        if hosts and host not in hosts:
            way_out = "start the server with --allowed-host to add one"
            return error_response(400, f"the Host header must be {' or '.join(hosts)}, got {host!r}: {way_out}", CLOSE)
        if (response := self._wrong_port(scope)) is not None:
            return response
        client = _client(scope)
        if scope["path"] == "/metrics" and self.settings.local_metrics and client not in LOOPBACK:
            return error_response(403, f"metrics are for this machine alone, got {client}: see --metrics", CLOSE)
        if self.rates is not None and scope["path"] != "/health" and not self.rates.take(client):
            limit = f"at most {self.rates.per_minute:g} requests a minute are allowed"
            return error_response(429, f"{limit}, got more from {client}: slow down", {"Retry-After": "1"})
        return self._wrong_type(headers) if _has_body(headers) else None

    def _wrong_port(self, scope: Scope) -> Response | None:
        """Keep metrics apart from all else, where they have a port of their own."""
        if self.settings.metrics_port is None or self._is_apart(scope) == (scope["path"] == "/metrics"):
            return None
        where = f"only /metrics is at port {self.settings.metrics_port}"
        return error_response(404, f"{where}, and nowhere else, got {scope['path']} at port {_port(scope)}", CLOSE)

    def _is_apart(self, scope: Scope) -> bool:
        return self.settings.metrics_port is not None and _port(scope) == self.settings.metrics_port

    def _wrong_type(self, headers: Headers) -> Response | None:
        """Refuse what a page of another site could send without asking."""
        kind = media_type(headers)
        if kind == FORM and not self._may_send(headers):
            message = f"forms of another site are refused, got Origin {headers['origin']!r}: see --cors"
            return error_response(403, message, CLOSE)
        if kind not in {JSON, FORM}:
            return error_response(415, f"Content-Type must be {JSON}, got {kind or 'none'}", CLOSE)
        return None

    def _may_send(self, headers: Headers) -> bool:
        origin = headers.get("origin")
        own = origin is None or urlsplit(origin).netloc == headers.get("host")
        return own or origin in self.settings.cors or "*" in self.settings.cors

    def _without_key(self, scope: Scope, headers: Headers, body: bytes) -> Response | None:
        keys = self.settings.api_keys
        if not keys or self._is_apart(scope) or WITHOUT_KEY.fullmatch(scope["path"]) or scope["method"] == "OPTIONS":
            return None
        sent = _sent_key(scope, headers, body)
        if any(hmac.compare_digest(sent.encode(), key.encode()) for key in keys):
            return None
        message = "this server needs a key: send it as Authorization: Bearer KEY, or as api_key"
        return error_response(403, message if not sent else f"unknown API key, got one of {len(sent)} characters")

    async def _read_body(
        self, scope: Scope, headers: Headers, receive: Receive
    ) -> tuple[bytes | None, Response | None]:
        """Return the body or the error to respond with; neither if the client has disconnected."""
        try:
            async with asyncio.timeout(self.settings.body_seconds) as timer:
                with self.bodies.pending(timer, _client(scope)):
                    body, more = await self._receive_body(headers, receive)
        except TimeoutError:
            message = f"the body must arrive within {self.settings.body_seconds:g} seconds, sooner if many are awaited"
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


class PendingBodies:
    """Bodies that are being received: where there are too many, of a client or of all, the oldest is given up."""

    def __init__(self, max_of_client: int, max_of_all: int):
        self.max_of_client = max_of_client
        self.max_of_all = max_of_all
        self._timers: OrderedDict[asyncio.Timeout, str] = OrderedDict()  # oldest first
        self._counts: Counter[str] = Counter()

    @contextmanager
    def pending(self, timer: asyncio.Timeout, client: str) -> Iterator[None]:
        """Count a body while it is received; its timer may expire early."""
        if self._counts[client] >= self.max_of_client:
            self._give_up(next(each for each, owner in self._timers.items() if owner == client))
        elif len(self._timers) >= self.max_of_all:
            self._give_up(next(iter(self._timers)))
        self._timers[timer] = client
        self._counts[client] += 1
        try:
            yield
        finally:
            self._forget(timer)

    def _give_up(self, timer: asyncio.Timeout) -> None:
        self._forget(timer)
        timer.reschedule(asyncio.get_running_loop().time())

    def _forget(self, timer: asyncio.Timeout) -> None:
        client = self._timers.pop(timer, None)
        if client is not None:
            self._counts[client] -= 1
            self._counts += Counter()  # drops those at 0


class TokenBuckets:
    """A rate for each client: a bucket holds a minute's requests, and fills at that rate."""

    def __init__(self, per_minute: float, max_clients: int = 10_000):
        self.per_minute = per_minute
        self.max_clients = max_clients
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when they were counted

    def take(self, client: str, now: float | None = None) -> bool:
        """Take one token from a client's bucket, if there is one."""
        now = time.monotonic() if now is None else now
        tokens, then = self._buckets.pop(client, (self.per_minute, now))
        tokens = min(self.per_minute, tokens + (now - then) * self.per_minute / 60)
        allowed = tokens >= 1
        self._buckets[client] = (tokens - allowed, now)
        if len(self._buckets) > self.max_clients:
            self._buckets.popitem(last=False)  # who has not asked for longest
        return allowed


def _client(scope: Scope) -> str:
    return scope["client"][0] if scope.get("client") else "unknown"


def _port(scope: Scope) -> int | None:
    return scope["server"][1] if scope.get("server") else None


def _has_body(headers: Headers) -> bool:
    return _content_length(headers) > 0 or "transfer-encoding" in headers


def _sent_key(scope: Scope, headers: Headers, body: bytes) -> str:
    """Return the key of a request: from its headers, its query or, as LibreTranslate's clients do, its body."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    query = QueryParams(scope["query_string"]).get("api_key")
    if query is not None:
        return query
    try:
        if media_type(headers) == FORM:
            return parse_qs(body.decode("utf-8")).get("api_key", [""])[0]
        fields = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        return ""
    key = fields.get("api_key") if isinstance(fields, dict) else None
    return key if isinstance(key, str) else ""


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
