"""The routes of the lessons: positions, kernel regression, one layer step by step."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from regard.serve.answers import answer
from regard.serve.asks import check_texts
from regard.serve.failures import FAILURES
from regard.serve.house import House
from regard.serve.lessons import Positions, Regression, Walk
from regard.serve.looking import unless_gone
from regard.serve.teaching import positions_of, regression_of, walk_of
from regard.serve.translating import chosen_model

Place = Annotated[int, Query(ge=0, le=511)]


def learning(house: House) -> APIRouter:
    """Makes the routes."""
    router = APIRouter(tags=["learn"], responses=FAILURES)

    @router.get("/positions", response_model=Positions)
    async def positions(
        request: Request,
        scheme: str = "sinusoidal",
        length: Annotated[int, Query(ge=8, le=512)] = 64,
        width: Annotated[int, Query(ge=3, le=256)] = 64,
        base: Annotated[float, Query(gt=1, le=1e9)] = 10000.0,
        steps: Annotated[int, Query(ge=1, le=511)] = 1,
        place: Place = 0,
    ) -> Response:
        """Measures a position scheme against its laws, and moves the code of one place by some steps."""
        work = house.looking.submit(lambda: answer(positions_of(scheme, length, width, base, steps, place)))
        return (await unless_gone(request, work))[0]

    @router.get("/regression", response_model=Regression)
    async def regression(
        request: Request,
        seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        n_train: Annotated[int, Query(ge=2, le=100)] = 50,
        n_test: Annotated[int, Query(ge=1, le=200)] = 100,
        noise: Annotated[float, Query(ge=0, le=10)] = 0.5,
        steps: Annotated[int, Query(ge=1, le=200)] = 200,
        w: Annotated[float, Query(ge=-100, le=100)] = 1.0,
    ) -> Response:
        """Runs kernel regression: average, fixed and learned widths, and one of your own."""
        work = house.looking.submit(lambda: answer(regression_of(seed, n_train, n_test, noise, steps, w)))
        return (await unless_gone(request, work))[0]

    @router.get("/steps", response_model=Walk)
    async def steps(
        request: Request,
        text: str,
        model: str | None = None,
        layer: Place = 0,
        head: Place = 0,
        features: Annotated[int, Query(ge=1, le=64)] = 12,
    ) -> Response:
        """Takes a sentence through one encoder layer, step by step."""
        check_texts([text], house.settings, house.settings.max_trace_chars)

        def work() -> Response:
            name = chosen_model(house.shelf, model, "auto", None, text)
            return answer(walk_of(house.shelf.open(name), name, text, layer, head, features))

        return (await unless_gone(request, house.looking.submit(work)))[0]

    return router
