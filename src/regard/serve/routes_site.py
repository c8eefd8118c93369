"""/, /models, /health, /studies."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

import regard
from regard.serve import UNBUILT
from regard.serve.middleware import CONTENT_TYPE
from regard.serve.requests import FAILURES, BrokenError, UnknownError
from regard.serve.schema_api import Health, Judged, Language, Limits, Models, Studies, Study, StudyRun
from regard.serve.serialize import answer
from regard.serve.state import House

if TYPE_CHECKING:
    from regard.study.ablation_runs import Row


NAMES = {"en": "English", "zh": "Chinese", "de": "German", "fr": "French", "ja": "Japanese", "ko": "Korean"}


def about(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(tags=["about"], responses=FAILURES)

    @router.get("/languages")
    async def languages() -> list[Language]:
        """Lists the languages that can be translated from, each with those it can be translated into."""
        pairs = [book.languages for book in house.shelf.books.values()]
        return [
            Language(code, NAMES.get(code, code), sorted({tgt for src, tgt in pairs if src == code}))
            for code in dict.fromkeys(src for src, _ in pairs)
        ]

    @router.get("/models")
    async def models() -> Models:
        """Describes the models of this server, and what it takes."""
        most = house.settings
        limits = Limits(most.max_chars, most.max_trace_chars, most.max_texts, most.max_beam, most.max_body)
        return Models(house.shelf.models(), limits, regard.__version__)

    @router.get("/health")
    async def health() -> Health:
        """Answers where the server is well."""
        return Health("ok")

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Gives counts and clocks as Prometheus reads them."""
        return Response(house.metrics.text(), media_type=CONTENT_TYPE)

    return router


# Windows may know other types, and a module of another type is not run.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".wasm": "application/wasm",
    ".map": "application/json",
}
FRESH = "no-cache"  # kept, and asked about each time
FOREVER = "public, max-age=31536000, immutable"  # names of assets change with what is in them


def page_routes(page: Path) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _page(request, page, "index.html")

    @router.api_route("/docs", methods=["GET", "HEAD"])
    async def docs(request: Request) -> Response:
        return _page(request, page, "docs.html")

    @router.api_route("/assets/{path:path}", methods=["GET", "HEAD"])
    async def asset(request: Request, path: str) -> Response:
        return _file(request, page, f"assets/{path}", FOREVER)

    # Names with a dot, so that nothing here stands where the API does.
    @router.api_route("/{name}.{ending}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str, ending: str) -> Response:
        return _file(request, page, f"{name}.{ending}", FRESH)

    return router


def _page(request: Request, page: Path, name: str) -> Response:
    if not (page / name).is_file():
        link = '<a href="/openapi.json">The API as an OpenAPI document</a>'
        return HTMLResponse(f"<!doctype html><title>Regard</title><p>{UNBUILT}.<p>{link}", 503)
    return _file(request, page, name, FRESH)


def _file(request: Request, page: Path, path: str, caching: str) -> Response:
    """Gives a file of the page and of nothing else, or tells that the browser has it."""
    found = (page / path).resolve()
    if not (found.is_relative_to(page.resolve()) and found.is_file() and found.suffix in TYPES):
        raise UnknownError("there is nothing here: see /docs")
    about = found.stat()
    headers = {"Cache-Control": caching, "ETag": f'"{about.st_mtime_ns:x}-{about.st_size:x}"'}
    if headers["ETag"] in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    return FileResponse(found, headers=headers, media_type=TYPES[found.suffix])


LOG = logging.getLogger("regard.serve")


def studying(house: House) -> APIRouter:
    """Makes the route."""
    router = APIRouter(tags=["look"], responses=FAILURES)

    @router.get("/studies", response_model=Studies)
    def studies() -> Response:
        """Lists the studies that the server was told of, with all runs that they have so far."""
        return answer(Studies([study_of(folder) for folder in house.settings.studies]))

    return router


def study_of(folder: Path) -> Study:
    """Reads a study from its folder; nothing that it says tells where that is."""
    from regard.study.ablation import read_rows  # with the trainer, which a server without studies need not load

    try:
        rows = read_rows(folder)
    except (ValueError, OSError) as error:
        LOG.exception("the study in %s could not be read", folder)
        raise BrokenError(f"the study {folder.name!r} could not be read; the server's log says why") from error
    on_test = any(row.bleu_test is not None for row in rows)
    runs = [_run(row, on_test) for row in rows]
    return Study(folder.name, "test" if on_test else "validation", runs, _clear(runs))


def check_studies(folders: list[Path]) -> tuple[Path, ...]:
    """Refuses folders that hold no study."""
    from regard.study.ablation import RESULTS

    for folder in folders:
        if not (folder / RESULTS).is_file():
            raise ValueError(
                f"{folder} holds no {RESULTS}: name the folder of a study, which regard study ablate makes"
            )
    return tuple(folders)


def _clear(runs: list[StudyRun]) -> list[str]:
    """Names the variants that differ from the first, which is the baseline, by more than chance."""
    from regard.study.stats import beyond, spread

    found: dict[str, list[float]] = {}
    for run in runs:
        if run.bleu is not None:
            found.setdefault(run.variant, []).append(run.bleu)
    means = {variant: spread(values) for variant, values in found.items()}
    base = next(iter(means.values()), None)
    return [variant for variant, mean in means.items() if base is not None and beyond(mean, base)]


def _run(row: "Row", on_test: bool) -> StudyRun:
    return StudyRun(
        variant=row.variant,
        part=row.part,
        changes=row.changes,
        seed=row.seed,
        error=row.error,
        parameters=row.parameters,
        tokens_per_second=row.tokens_per_second,
        seconds=row.seconds,
        perplexity=row.perplexity,
        bleu=row.bleu_test if on_test else row.bleu_valid,
        curve=[Judged(int(each["step"]), each["loss"], each["bleu"]) for each in row.curve],
    )
