"""A server on a port: opened, told about, and closed in order."""

import errno
import socket
from collections.abc import Callable

import torch
import uvicorn
from fastapi import FastAPI

from regard.serve.protocol import patient
from regard.serve.settings import ServeSettings

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
