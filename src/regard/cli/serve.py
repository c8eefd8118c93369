"""The command that serves the web page and the HTTP API."""

import webbrowser
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Option

from regard.cli.options import Device, Precision
from regard.pipeline import choose_device
from regard.serve import ServeSettings
from regard.serve.models import ModelRegistry, check_folders
from regard.serve.routes_site import check_studies
from regard.serve.server import LOOPBACK, make_app, open_port, url_of
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
    workers: Annotated[int | None, Option(help=WORKERS, min=1, show_default="by the machine")] = None,
    threads: Annotated[int, Option(help="Threads per worker.", min=1)] = 1,
    precision: Precision = "float32",
    device: Device = "auto",
) -> None:
    choose_device(device, precision)
    registry = ModelRegistry(model or (), precision, device)
    if not registry.entries:
        raise ValueError("no models come with this copy of regard: name one with --model; regard train makes one")
    writers = check_folders("writer", writer or (), "regard train --family decoder")
    studies, readers = check_studies(study) if study else (), check_folders("reader", reader or (), "regard qa train")
    listening = open_port(host, DEFAULT_PORT if port is None else port, or_free=port is None)
    # A local server answers to local names only: a foreign page could point its own name here (DNS rebinding).
    settings = ServeSettings(threads=threads, cors=tuple(cors or ()), hosts=LOOPBACK if host in LOOPBACK else ())
    settings = replace(settings, studies=studies, readers=readers, writers=writers)
    settings = settings if workers is None else replace(settings, workers=workers)
    is_free_one = port is None and listening.getsockname()[1] != DEFAULT_PORT
    report = partial(report_start, url_of(listening), registry, is_free_one, host not in LOOPBACK, open_)
    run(make_app(registry, settings), listening, settings, report)


def report_start(url: str, registry: ModelRegistry, is_free_one: bool, is_open: bool, open_: bool) -> None:
    """Say where the server is and what to know about it, and open the page in a browser where that is asked for."""
    if is_free_one:
        message(f"[yellow]port {DEFAULT_PORT} is taken; listening on another[/]")
    if is_open:
        message("[yellow]other machines can use this server: nothing is encrypted[/]")
    for name in registry.unnamed():
        languages = " → ".join(registry.entries[name].languages)
        message(
            f"[yellow]{escape(name)} was trained without a name for each of its languages ({languages})[/]: it takes "
            "requests for any; regard train --from zh --to en names them"
        )
    models = ", ".join(registry.entries)
    message(f"Regard is at [bold]{escape(url)}[/]  (models {escape(models)}; Ctrl-C stops it)")
    if open_:
        webbrowser.open(url)
