"""/positions, /regression, /steps."""

from functools import lru_cache
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from regard.serve.requests import ERROR_RESPONSES, check_texts, json_response
from regard.serve.routes_translate import choose_model
from regard.serve.schema_api import LayerSteps, Positions, RegressionJson
from regard.serve.state import ServerState, load_pytorch

N_COMPARISONS = 256  # whose results are cached
Place = Annotated[int, Query(ge=0, le=511)]


def lesson_routes(state: ServerState) -> APIRouter:
    """Return the routes of the lessons."""
    router = APIRouter(tags=["lessons"], responses=ERROR_RESPONSES)
    compare = lru_cache(N_COMPARISONS)(_compare)

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
        """Measure a position encoding against its laws, and shift the code of one position by some steps."""

        def work() -> Response:
            options = (scheme, length, width, base, steps, place)
            return json_response(load_pytorch().position_lesson(*options, compare))

        return await state.jobs.run(request, work)

    @router.get("/regression", response_model=RegressionJson)
    async def regression(
        request: Request,
        seed: Annotated[int, Query(ge=0, lt=2**31)] = 0,
        n_train: Annotated[int, Query(ge=2, le=100)] = 50,
        n_test: Annotated[int, Query(ge=1, le=200)] = 100,
        noise: Annotated[float, Query(ge=0, le=10)] = 0.5,
        steps: Annotated[int, Query(ge=1, le=200)] = 200,
        w: Annotated[float, Query(ge=-100, le=100)] = 1.0,
    ) -> Response:
        """Run attention as kernel regression: uniform weights, a fixed, a learned and a chosen bandwidth."""
        return await state.jobs.run(
            request, lambda: json_response(load_pytorch().regression_lesson(seed, n_train, n_test, noise, steps, w))
        )

    @router.get("/steps", response_model=LayerSteps)
    async def steps(
        request: Request,
        text: str,
        model: str | None = None,
        layer: Place = 0,
        head: Place = 0,
        features: Annotated[int, Query(ge=1, le=64)] = 12,
    ) -> Response:
        """Compute one encoder layer for a sentence, step by step."""
        check_texts([text], state.settings)

        def work() -> Response:
            name = choose_model(state.models, model, "auto", None, text)
            translator = state.models.open(name)
            return json_response(load_pytorch().layer_lesson(translator, name, text, layer, head, features))

        return await state.jobs.run(request, work)

    return router


def _compare(scheme: str, width: int, base: float) -> int | None:
    return load_pytorch().compare_codes(scheme, width, base)
