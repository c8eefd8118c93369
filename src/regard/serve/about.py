"""The routes that tell about the server."""

from fastapi import APIRouter
from starlette.responses import Response

import regard
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.messages import Health, Language, Limits, Models
from regard.serve.metrics import CONTENT_TYPE

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
