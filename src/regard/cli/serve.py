"""The command that serves the page and the API."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Device, Precision, app
from regard.plot.terminal import escaped, say

MODELS = "A run's folder or a model folder, besides the bundled models. May be repeated."
WRITERS = "A run of a decoder, which writes text on the page. May be repeated."
READERS = "A folder made by regard qa train, to answer questions on the page. May be repeated."
STUDIES = "The folder of a study that the page shows, made by regard study ablate. May be repeated."
HOST = "The address to listen on; 0.0.0.0 is every one this machine has."
WORKERS = "Batches that are translated at the same time."
CORS = "An origin whose pages may use the API, such as https://example.org, or *. May be repeated."


@app.command()
def serve(
    model: Annotated[list[str] | None, typer.Option("--model", "-m", help=MODELS)] = None,
    host: Annotated[str, typer.Option(help=HOST)] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; where it is taken, a free one.", min=0, max=65535)] = 8000,
    writer: Annotated[list[Path] | None, typer.Option(help=WRITERS)] = None,
    reader: Annotated[list[Path] | None, typer.Option(help=READERS)] = None,
    study: Annotated[list[Path] | None, typer.Option(help=STUDIES)] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    cors: Annotated[list[str] | None, typer.Option(help=CORS)] = None,
    workers: Annotated[int | None, typer.Option(help=WORKERS, min=1, show_default="by the machine")] = None,
    threads: Annotated[int, typer.Option(help="Threads of each of them.", min=1)] = 1,
    precision: Precision = "float32",
    device: Device = "cpu",
) -> None:
    """Serves the page and the API, with all bundled models and your own."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ValueError("serving needs FastAPI and uvicorn: pip install 'regard[serve]'") from error
    from regard.pipeline import choose_device
    from regard.serve.app import make_app
    from regard.serve.models import ModelRegistry, check_folders
    from regard.serve.routes_site import check_studies
    from regard.serve.server import LOOPBACK, ServeSettings, open_port, url_of
    from regard.serve.server import serve as run

    choose_device(device, precision)
    shelf = ModelRegistry(model or (), precision, device)
    if not shelf.entries:
        raise ValueError("no models come with this copy of regard: name one with --model; regard train makes one")
    writers = check_folders("writer", writer or (), "regard train --family decoder")
    studies, readers = check_studies(study) if study else (), check_folders("reader", reader or (), "regard qa train")
    door = open_port(host, port)
    # Only who calls a local server by a local name is let in: a page of somebody else's might point its own name here.
    settings = ServeSettings(threads=threads, cors=tuple(cors or ()), hosts=LOOPBACK if host in LOOPBACK else ())
    settings = replace(settings, studies=studies, readers=readers, writers=writers)
    settings = settings if workers is None else replace(settings, workers=workers)
    where = url_of(door)
    if not where.endswith(f":{port}") and port:
        say(f"[yellow]port {port} is taken; listening on another[/]")

    def ready() -> None:
        say(f"Regard is at [bold]{escaped(where)}[/]  (models {escaped(', '.join(shelf.entries))}; Ctrl-C stops it)")
        if open_:
            import webbrowser

            webbrowser.open(where)

    run(make_app(shelf, settings), door, settings, ready)
