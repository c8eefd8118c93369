"""The application: all routes, error handlers and middleware."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from regard import __version__
from regard.serve import PAGE
from regard.serve.middleware import LimitsMiddleware, MetricsMiddleware, SecurityHeadersMiddleware
from regard.serve.models import ModelRegistry
from regard.serve.requests import add_error_handlers
from regard.serve.routes_lessons import lesson_routes
from regard.serve.routes_site import page_routes, site_routes, study_routes
from regard.serve.routes_text import answer_routes, generate_routes
from regard.serve.routes_translate import trace_routes, translate_routes
from regard.serve.server import ServeSettings
from regard.serve.state import ServerState

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
    add_error_handlers(app)
    # The last one added is the outermost.
    if settings.cors:
        app.add_middleware(CORSMiddleware, allow_origins=settings.cors, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(LimitsMiddleware, settings=settings)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(MetricsMiddleware, metrics=state.metrics)
    return app
