"""/, /models, /languages, /health, /metrics, /studies."""

from pathlib import Path
from types import ModuleType

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

from regard import __version__
from regard.extras import needed_by
from regard.serve import UNBUILT, NotFoundError
from regard.serve.middleware import CONTENT_TYPE
from regard.serve.models import UNNAMED
from regard.serve.requests import ERROR_RESPONSES, json_response
from regard.serve.schema_api import Health, Language, Limits, Models, Studies
from regard.serve.state import ServerState

NAMES = {"en": "English", "zh": "Chinese", "de": "German", "fr": "French", "ja": "Japanese", "ko": "Korean"}


def site_routes(state: ServerState) -> APIRouter:
    """Return the routes that describe the server."""
    router = APIRouter(tags=["server"], responses=ERROR_RESPONSES)

    @router.get("/languages")
    async def languages() -> list[Language]:
        """List the source languages, each with its target languages."""
        pairs = [entry.languages for entry in state.models.entries.values()]
        return [
            Language(code, NAMES.get(code, code), sorted({tgt for src, tgt in pairs if src == code} - UNNAMED))
            for code in dict.fromkeys(src for src, _ in pairs if src not in UNNAMED)
        ]

    @router.get("/models")
    async def models() -> Models:
        """Describe the models and the limits of this server."""
        settings = state.settings
        limits = Limits(
            max_chars=settings.max_chars,
            max_trace_chars=settings.max_chars,
            max_texts=settings.max_texts,
            max_beam=settings.max_beam,
            max_body=settings.max_body,
            max_hypotheses=settings.max_hypotheses,
            max_seconds=settings.max_seconds,
        )
        return Models(state.models.describe(), limits, __version__)

    @router.get("/health")
    async def health() -> Health:
        """Report that the server is running."""
        return Health("ok")

    @router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return metrics in the Prometheus text format."""
        return Response(state.metrics.text(), media_type=CONTENT_TYPE)

    return router


# Not left to the system: Windows may map .js to another type, and browsers then refuse to run modules.
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
REVALIDATE = "no-cache"  # cached, but revalidated each time
IMMUTABLE = "public, max-age=31536000, immutable"  # names of assets contain a hash


def page_routes(page: Path) -> APIRouter:
    """Return the routes of the built page."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/", methods=["GET", "HEAD"])
    async def index(request: Request) -> Response:
        return _page(request, page, "index.html")

    @router.api_route("/docs", methods=["GET", "HEAD"])
    async def docs(request: Request) -> Response:
        return _page(request, page, "docs.html")

    @router.api_route("/assets/{path:path}", methods=["GET", "HEAD"])
    async def asset(request: Request, path: str) -> Response:
        return _file(request, page, f"assets/{path}", IMMUTABLE)

    # Only names with a dot, which no route of the API has.
    @router.api_route("/{name}.{ending}", methods=["GET", "HEAD"])
    async def file(request: Request, name: str, ending: str) -> Response:
        return _file(request, page, f"{name}.{ending}", REVALIDATE)

    return router


def _page(request: Request, page: Path, name: str) -> Response:
    if not (page / name).is_file():
        link = '<a href="/openapi.json">The API as an OpenAPI document</a>'
        return HTMLResponse(f"<!doctype html><title>Regard</title><p>{UNBUILT}.<p>{link}", 503)
    return _file(request, page, name, REVALIDATE)


def _file(request: Request, page: Path, path: str, caching: str) -> Response:
    """Respond with a file of the page, never one outside its folder, or with 304 if the browser has it."""
    file = _find(page, path)
    if file is None:
        raise NotFoundError("no such file; see /docs")
    status = file.stat()
    headers = {"Cache-Control": caching, "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"'}
    if headers["ETag"] in request.headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    return FileResponse(file, headers=headers, media_type=TYPES[file.suffix])


def _find(page: Path, path: str) -> Path | None:
    try:
        file = (page / path).resolve()
        return file if file.is_relative_to(page.resolve()) and file.is_file() and file.suffix in TYPES else None
    except (OSError, ValueError):  # a name that is too long for a file, or holds a zero byte
        return None


def study_routes(state: ServerState) -> APIRouter:
    """Return the route of /studies."""
    router = APIRouter(tags=["studies"], responses=ERROR_RESPONSES)

    @router.get("/studies", response_model=Studies)
    def studies() -> Response:
        """List the studies of this server, with all runs so far."""
        return json_response(Studies([load_studies().read_study(folder) for folder in state.settings.studies]))

    return router


def load_studies() -> ModuleType:
    """Return what reads studies; importing it loads the trainer, which other routes do not need."""
    with needed_by("a study"):
        from regard.serve import studies

    return studies
