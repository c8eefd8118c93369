"""The routes become one application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

import regard
from regard.serve import PAGE
from regard.serve.middleware import Border
from regard.serve.models import Shelf
from regard.serve.requests import answer_failures
from regard.serve.routes_lessons import learning
from regard.serve.routes_site import about, page_routes, studying
from regard.serve.routes_text import answering, writing
from regard.serve.routes_translate import tracing, translating
from regard.serve.server import ServeSettings
from regard.serve.state import House

DESCRIPTION = "Translate, and look inside the very model that translates."


def make_app(shelf: Shelf, settings: ServeSettings = ServeSettings(), page: Path = PAGE) -> FastAPI:
    """Makes a server's application; its threads begin and end with its life."""
    house = House(shelf, settings)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        house.open()
        yield
        house.close()

    app = FastAPI(
        title="Regard",
        version=regard.__version__,
        description=DESCRIPTION,
        lifespan=life,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's own page loads its parts from elsewhere
        redoc_url=None,
    )
    for routes in (translating, tracing, learning, answering, writing, studying, about):
        app.include_router(routes(house))
    app.include_router(page_routes(page))
    answer_failures(app)
    if settings.cors:
        app.add_middleware(CORSMiddleware, allow_origins=settings.cors, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(Border, settings=settings, metrics=house.metrics)
    return app
