"""The command that serves the web page and the HTTP API."""

import webbrowser
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Annotated

from typer import Option

from regard.cli.options import Device, Precision
from regard.pipeline import choose_device
from regard.serve import ServeSettings
from regard.serve.limits import LOOPBACK
from regard.serve.models import ModelRegistry, check_folders
from regard.serve.routes_site import load_studies
from regard.serve.server import make_app, open_port, url_of
from regard.serve.server import serve as run
from regard.terminal import escape, message

MODELS = "The folder of a run or a model folder, in addition to the bundled models. May be repeated."
WRITERS = "The folder of a run with a decoder, which generates text on the page. May be repeated."
READERS = "A folder made by regard qa train, which answers questions on the page. May be repeated."
STUDIES = "A folder made by regard study ablate, which the page shows. May be repeated."
HOST = "Address to listen on; 0.0.0.0 is every interface of this machine."
PORT = "Port, which must be free; 0 is any free one."
WORKERS = "Batches translated at the same time."
CORS = "Origin whose pages may use the API, such as https://example.org, or *. May be repeated."
ALLOWED = "Name by which others may address this server, as in its Host header. May be repeated."
KEYS = "Key that a request must send, as a bearer token or as api_key. May be repeated."
RATE = "Requests that one client may send in a minute."
METRICS = "Who may read /metrics: all, or local for this machine alone."
METRICS_PORT = "Port for /metrics alone, without a key; on this machine's own address unless --metrics is all."
DEFAULT_PORT = 8000


def serve(
    model: Annotated[list[str] | None, Option("--model", "-m", help=MODELS)] = None,
    host: Annotated[str, Option(help=HOST)] = "127.0.0.1",
    port: Annotated[int | None, Option(help=PORT, min=0, max=65535, show_default="8000, or a free one")] = None,
    writer: Annotated[list[Path] | None, Option(help=WRITERS)] = None,
    reader: Annotated[list[Path] | None, Option(help=READERS)] = None,
    study: Annotated[list[Path] | None, Option(help=STUDIES)] = None,
    open_: Annotated[bool, Option("--open", help="Open the page in a browser.")] = False,
    cors: Annotated[list[str] | None, Option(help=CORS)] = None,
    allowed_host: Annotated[list[str] | None, Option(help=ALLOWED)] = None,
    api_key: Annotated[list[str] | None, Option(help=KEYS, envvar="REGARD_API_KEY", show_envvar=True)] = None,
    rate: Annotated[float | None, Option(help=RATE, min=1, show_default="no limit")] = None,
    metrics: Annotated[str | None, Option(help=METRICS, show_default="local where others can connect")] = None,
    metrics_port: Annotated[int | None, Option(help=METRICS_PORT, min=0, max=65535, show_default="that of all")] = None,
    workers: Annotated[int | None, Option(help=WORKERS, min=1, show_default="by the machine")] = None,
    threads: Annotated[int, Option(help="Threads per worker.", min=1)] = 1,
    precision: Precision = "float32",
    device: Device = "auto",
) -> None:
    registry = open_registry(model or [], precision, device)
    writers = check_folders("writer", writer or (), "regard train --family decoder")
    readers = check_folders("reader", reader or (), "regard qa train")
    studies = load_studies().check_studies(study) if study else ()
    local = are_local(metrics, host)
    listening = open_ports((host, port), (LOOPBACK[0] if local else host, metrics_port))
    settings = ServeSettings(
        threads=threads,
        studies=studies,
        readers=readers,
        writers=writers,
        cors=tuple(cors or ()),
        hosts=allowed_hosts(host, allowed_host or []),
        api_keys=tuple(api_key or ()),
        requests_per_minute=rate,
        local_metrics=local,
        metrics_port=next((each.getsockname()[1] for each in listening[1:]), None),
    )
    settings = settings if workers is None else replace(settings, workers=workers)
    report = partial(report_start, listening, registry, port is None, host not in LOOPBACK and not api_key, open_)
    run(make_app(registry, settings), listening, settings, report)


def open_registry(names: list[str], precision: str, device: str) -> ModelRegistry:
    """Return the models to serve; raise ValueError where there are none."""
    registry = ModelRegistry(names, precision, choose_device(device, precision))
    if not registry.entries:
        raise ValueError("no models come with this copy of regard: name one with --model; regard train makes one")
    return registry


def open_ports(address: tuple[str, int | None], metrics: tuple[str, int | None]) -> list[socket]:
    """Bind the address of the server and then that of its metrics, if they have a port of their own."""
    (host, port), (metrics_host, metrics_port) = address, metrics
    listening = [open_port(host, DEFAULT_PORT if port is None else port, or_free=port is None)]
    return listening if metrics_port is None else [*listening, open_port(metrics_host, metrics_port)]


def are_local(metrics: str | None, host: str) -> bool:
    """Tell whether metrics are for this machine alone: as the user says, or where others can connect."""
    if metrics not in {None, "all", "local"}:
        raise ValueError(f"--metrics must be all or local, got {metrics!r}")
    return host not in LOOPBACK if metrics is None else metrics == "local"


def allowed_hosts(host: str, named: list[str]) -> tuple[str, ...]:
    """Return the names that a server answers to: a local one to local names, any other to all unless some are named.

    Otherwise a foreign page could point its own name here (DNS rebinding).
    """
    return (*LOOPBACK, *(each.lower() for each in named)) if named or host in LOOPBACK else ()


def report_start(listening: list[socket], registry: ModelRegistry, any_port: bool, is_open: bool, open_: bool) -> None:
    """Say where the server is and what to know about it, and open the page in a browser where that is asked for."""
    url, *apart = map(url_of, listening)
    if any_port and listening[0].getsockname()[1] != DEFAULT_PORT:
        message(f"[yellow]port {DEFAULT_PORT} is taken; listening on another[/]")
    if is_open:
        message("[yellow]other machines can use this server: nothing is encrypted, and --api-key sets no key[/]")
    for name in registry.unnamed():
        languages = " → ".join(registry.entries[name].languages)
        message(
            f"[yellow]{escape(name)} was trained without a name for each of its languages ({languages})[/]: it takes "
            "requests for any; regard train --from zh --to en names them"
        )
    for each in apart:
        message(f"Metrics are at {escape(each)}/metrics")
    models = ", ".join(registry.entries)
    message(f"Regard is at [bold]{escape(url)}[/]  (models {escape(models)}; Ctrl-C stops it)")
    if open_:
        webbrowser.open(url)
