"""Uvicorn, timeouts, settings."""

import asyncio
import errno
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import h11
import torch
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol


class PatientProtocol(H11Protocol):
    """Closes connections on which a request does not arrive in time, and those on which an answer is not read.

    uvicorn by itself waits for ever, for the end of a request's first lines and for a client to read on.
    """

    patience = 10.0  # seconds
    timer: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self._stop_reading()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Counts the time while a request has begun to come and is not there yet."""
        if self.conn.their_state is not h11.IDLE:
            self._rest()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.patience, self._late)

    def _rest(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _late(self) -> None:
        self.timer = None
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"a request must arrive within {self.patience:g} seconds")
        else:
            self.transport.close()  # browsers open connections that they may never use

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stop_reading()
        super().resume_writing()

    def _await_reading(self, left: int) -> None:
        """Looks after a while whether the client has read on, and if so again."""
        self.reading = self.loop.call_later(self.patience, self._unread, left)

    def _unread(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left >= before:
            self.transport.abort()
        else:
            self._await_reading(left)

    def _stop_reading(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP")

    def _refuse(self, status: int, words: str) -> None:
        body = json.dumps({"error": words}).encode()
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


def patient(seconds: float) -> type[PatientProtocol]:
    """Gives the protocol with a patience of its own."""
    return type("PatientProtocol", (PatientProtocol,), {"patience": seconds})


@dataclass(frozen=True)
class ServeSettings:
    """Limits are for one request unless they say otherwise."""

    max_chars: int = 20_000  # of all its texts together
    max_texts: int = 256
    max_pieces: int = 400  # that a writer writes
    max_trace_chars: int = 2_000  # of a text that is looked into
    max_beam: int = 16
    max_body: int = 2**20  # bytes
    body_seconds: float = 10.0  # for a whole body to arrive
    head_seconds: float = 10.0  # for a request's first lines to arrive, and for an answer to be read on
    max_requests: int = 512  # at once
    max_waiting: int = 4_096  # texts of all requests
    max_looking: int = 32  # traces and lessons of all requests
    batch_texts: int = 64  # translated together; 1 translates each by itself
    batch_chars: int = 8_192
    batch_seconds: float = 0.002  # that a first text waits for others
    kept_traces: int = 32
    kept_bytes: int = 2**29  # of all kept traces
    # That translate at the same time, on half of the machine: the rest is for looking, and for the connections.
    workers: int = field(default_factory=lambda: max(1, min((os.cpu_count() or 1) // 2, 4)))
    threads: int = 1  # of each of them: several workers of one thread do more than one of several
    studies: tuple[Path, ...] = ()  # folders of studies that the page shows
    readers: tuple[Path, ...] = ()  # folders of readers that answer questions
    writers: tuple[Path, ...] = ()  # folders of models that write text
    cors: tuple[str, ...] = ()  # origins whose pages may ask
    hosts: tuple[str, ...] = ()  # names by which the server may be called; none are any


GRACE_SECONDS = 5
MOST_CONNECTIONS = 4096  # uvicorn's own limit, far above ours
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def open_port(host: str, port: int) -> socket.socket:
    """Binds a port, or any free one where it is taken."""
    try:
        family, kind, proto, _, _ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"--host must be a name or an address of this machine, got {host!r}") from error
    door = socket.socket(family, kind, proto)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError as error:
        door.close()
        if error.errno == errno.EADDRINUSE and port:
            return open_port(host, 0)
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return door


def address(door: socket.socket) -> str:
    """Gives what a browser on this machine is told."""
    host, port = door.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server(uvicorn.Server):
    """Tells when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]):
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.ready()


def make_server(app: FastAPI, settings: ServeSettings, ready: Callable[[], None]) -> Server:
    """Makes a server of an application."""
    config = uvicorn.Config(
        app,
        http=patient(settings.head_seconds),
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return Server(config, ready)


def serve(app: FastAPI, door: socket.socket, settings: ServeSettings, ready: Callable[[], None]) -> None:
    """Serves until somebody stops it, and calls `ready` once it answers."""
    torch.set_num_threads(settings.threads)  # before any thread is: each begins with what is set then
    server = make_server(app, settings, ready)
    try:
        server.run(sockets=[door])
    except KeyboardInterrupt:
        pass  # uvicorn has stopped in order, and tells that it was asked to
    finally:
        door.close()
