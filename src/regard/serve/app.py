"""The routes become one application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

import regard
from regard.serve.about import about
from regard.serve.answering import answering
from regard.serve.border import Border
from regard.serve.failures import answer_failures
from regard.serve.house import House
from regard.serve.learning import learning
from regard.serve.page import PAGE
from regard.serve.paging import page_routes
from regard.serve.settings import ServeSettings
from regard.serve.shelf import Shelf
from regard.serve.studying import studying
from regard.serve.tracing import tracing
from regard.serve.translating import translating
from regard.serve.writing import writing

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
