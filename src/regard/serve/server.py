"""The application with all its routes, the Uvicorn server that runs it, and its timeouts."""

import asyncio
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard import __version__
from regard.serve import PAGE, ServeSettings
from regard.serve.limits import LimitsMiddleware
from regard.serve.memory import limit_arenas
from regard.serve.middleware import MetricsMiddleware, SecurityHeadersMiddleware
from regard.serve.models import ModelRegistry
from regard.serve.requests import add_error_handlers
from regard.serve.routes_lessons import lesson_routes
from regard.serve.routes_site import page_routes, site_routes, study_routes
from regard.serve.routes_text import answer_routes, generate_routes
from regard.serve.routes_translate import trace_routes, translate_routes
from regard.serve.state import ServerState

LOG = logging.getLogger("regard.serve")


class TimeoutProtocol(H11Protocol):
    """Closes connections whose request line and headers do not arrive in time, or whose client stops reading.

    uvicorn alone waits for both without a limit. A client that closes its own side only still gets its response, and
    connections beyond a number are refused, so that there are files left to open.
    """

    timeout = 10.0  # seconds
    max_connections = 4096
    head_timer: asyncio.TimerHandle | None = None
    write_timer: asyncio.TimerHandle | None = None
    probe_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(503, f"{self.max_connections} connections are open already: try again in a moment")
            return
        self._update_head_timer()

    def eof_received(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Keep the connection for a response that is awaited, unless the client does not read either.

        That shows when something is sent: an interim response, which every client of HTTP/1.1 skips, and another.
        """
        cycle = self.cycle
        awaited = cycle is not None and not cycle.response_complete and not cycle.more_body
        if not awaited or self.conn.their_http_version == b"1.0":
            return False
        cycle.keep_alive = False
        self._probe()
        self.probe_timer = self.loop.call_later(PROBE_SECONDS, self._probe)
        return True

    def _probe(self) -> None:
        self.probe_timer = None
        if self.conn.our_state is h11.SEND_RESPONSE and not self.cycle.response_started:
            interim = h11.InformationalResponse(status_code=102, headers=[], reason=b"Processing")
            self.transport.write(self.conn.send(interim) or b"")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.probe_timer is not None:
            self.probe_timer.cancel()
        self._stop_head_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_head_timer()

    def _update_head_timer(self) -> None:
        """Run the timer while a request is awaited."""
        if self.conn.their_state is not h11.IDLE:
            self._stop_head_timer()
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(self.timeout, self._head_timed_out)

    def _stop_head_timer(self) -> None:
        if self.head_timer is not None:
            self.head_timer.cancel()
            self.head_timer = None

    def _head_timed_out(self) -> None:
        self.head_timer = None
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"request line and headers must arrive within {self.timeout:g} seconds")
        else:
            self.transport.close()  # browsers open connections in advance

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _start_write_timer(self, unsent: int) -> None:
        """Check periodically that the client has read something."""
        self.write_timer = self.loop.call_later(self.timeout, self._check_progress, unsent)

    def _check_progress(self, before: int) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent >= before:
            self.transport.abort()
        else:
            self._start_write_timer(unsent)

    def _stop_write_timer(self) -> None:
        if self.write_timer is not None:
            self.write_timer.cancel()
            self.write_timer = None

    def send_400_response(self, msg: str) -> None:
        begun = self.conn.trailing_data[0]
        if len(begun) > MAX_LINE and b"\n" not in begun[:MAX_LINE]:
            self._refuse(414, f"the request line may have at most {MAX_LINE} bytes: send long texts in a body")
        else:
            self._refuse(400, "not a valid HTTP request")

    def _refuse(self, status: int, message: str) -> None:
        body = json.dumps({"error": message}).encode()
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            for event in (
                h11.Response(status_code=status, headers=headers, reason=b""),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def timeout_protocol(seconds: float, max_connections: int) -> type[TimeoutProtocol]:
    """Return the protocol with a timeout."""
    return type("TimeoutProtocol", (TimeoutProtocol,), {"timeout": seconds, "max_connections": max_connections})


PROBE_SECONDS = 0.2  # for a client's reset to arrive
MAX_LINE = 2**14  # bytes of a request line; h11 takes no more
GRACE_SECONDS, RESPONSE_SECONDS = 5, 2  # from a signal to the end; of them for those who wait to be told
MAX_CONNECTIONS, OWN_FILES = 4096, 128  # OWN_FILES are for models, the page and libraries
EVERY_INTERFACE = ("0.0.0.0", "::")


def open_port(host: str, port: int, or_free: bool = False) -> socket.socket:
    """Bind a port; where it is taken, any free one if that will do."""
    try:
        family, kind, proto, _, _ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"--host must be a name or address of this machine, got {host!r}") from error
    listener = socket.socket(family, kind, proto)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE and or_free:
            return open_port(host, 0)
        way_out = ": choose another, or 0 for any free one" if error.errno == errno.EADDRINUSE else ""
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}{way_out}") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the URL for a browser; of all interfaces, that of the one through which others reach this machine."""
    host, port = listener.getsockname()[:2]
    host = outer_address(listener.family) if host in EVERY_INTERFACE else host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def outer_address(family: int = socket.AF_INET) -> str:
    """Return this machine's address as others see it, or loopback where there is no network; nothing is sent."""
    elsewhere, loopback = ("2001:db8::1", "::1") if family == socket.AF_INET6 else ("192.0.2.1", "127.0.0.1")
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))  # of a datagram socket: only chooses a route
            return probe.getsockname()[0]
        except OSError:
            return loopback


class Server(uvicorn.Server):
    """A uvicorn server that calls `ready` when it has started, and `stop` when those who wait must be told."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], stop: Callable[[], None]):
        super().__init__(config)
        self.ready = ready
        self.stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(LoopErrorLog())
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)
        if self.started:
            self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_SECONDS - RESPONSE_SECONDS, self.stop)
        await super().shutdown(sockets)


class LoopErrorLog:
    """Says in one line that no files are left for connections, and logs other errors of the event loop as it does.

    asyncio accepts again after a second, but reports the error once for each connection that it had tried to accept.
    """

    def __init__(self) -> None:
        self._silent_until = -inf  # by the loop's clock

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in NO_FILES:
            loop.default_exception_handler(context)
        elif loop.time() >= self._silent_until:
            self._silent_until = loop.time() + LOG_SECONDS
            LOG.warning("no connections are accepted for a second: %s", error.strerror)


NO_FILES, LOG_SECONDS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}, 10.0


def connection_limit() -> int:
    """Return how many connections there may be, after raising the number of open files as far as allowed."""
    try:
        import resource  # not on Windows
    except ImportError:
        return MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    n_files = wanted if soft == resource.RLIM_INFINITY else soft
    return max(1, min(MAX_CONNECTIONS, max(n_files - OWN_FILES, n_files // 4)))


def make_server(app: FastAPI, settings: ServeSettings, ready: Callable[[], None]) -> Server:
    """Make a server for an application."""
    config = uvicorn.Config(
        app,
        http=timeout_protocol(settings.head_seconds, connection_limit()),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config, ready, app.state.stop)


# Connections that the system queues, and those that asyncio accepts before it goes on. It counts them some rounds
# later, and until then they must fit into OWN_FILES.
BACKLOG, ACCEPTED_AT_ONCE = 256, 16


def serve(app: FastAPI, listeners: Sequence[socket.socket], settings: ServeSettings, ready: Callable[[], None]) -> None:
    """Serve until interrupted; call `ready` as soon as requests are accepted."""
    os.environ["OMP_NUM_THREADS"] = str(settings.threads)  # read by our own library, and by PyTorch if it comes later
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(settings.threads)  # before any thread starts: each inherits the setting
    limit_arenas()
    server = make_server(app, settings, ready)
    try:
        server.run(sockets=list(listeners))
    except KeyboardInterrupt:
        pass  # uvicorn has shut down cleanly, and raises the signal again
    finally:
        for listener in listeners:
            listener.close()


DESCRIPTION = "Translate text, and look inside the model that translates it."


def make_app(models: ModelRegistry, settings: ServeSettings = ServeSettings(), page: Path = PAGE) -> FastAPI:
    """Make the application; its threads live as long as its lifespan."""
    state = ServerState(models, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        state.open()
        yield
        state.close()

    app = FastAPI(
        title="Regard",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's own page loads its scripts from a CDN
        redoc_url=None,
    )
    for routes in (
        translate_routes,
        trace_routes,
        lesson_routes,
        answer_routes,
        generate_routes,
        study_routes,
        site_routes,
    ):
        app.include_router(routes(state))
    app.include_router(page_routes(page))
    app.state.stop = state.stop
    add_error_handlers(app)
    # The last one added is the outermost.
    if settings.cors:
        app.add_middleware(CORSMiddleware, allow_origins=settings.cors, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(LimitsMiddleware, settings=settings)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)
    return app
