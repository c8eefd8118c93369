"""The routes of the built page."""

from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import FileResponse, HTMLResponse, Response

from regard.serve.errors import UnknownError
from regard.serve.page import UNBUILT

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
