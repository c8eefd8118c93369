"""/positions, /regression, /steps."""

from typing import Annotated

import torch
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from regard.attention import Gaussian
from regard.padding import EOS
from regard.pipeline.translator import Translator
from regard.position import POSITION
from regard.serve import schema_api as lessons
from regard.serve.jobs import unless_gone
from regard.serve.requests import FAILURES, check_texts
from regard.serve.routes_translate import chosen_model
from regard.serve.schema_api import Positions, Regression, Walk
from regard.serve.serialize import answer, digits, number
from regard.serve.state import House
from regard.study import positions as study
from regard.study.positions import Moved, find_shift
from regard.study.regression import Curve, look, pool, run_regression, truth
from regard.trace.residual import Stage, encoder_stages

FAR = 10_000  # positions whose codes are compared: more takes seconds
N_WORDS = 16
TAGS = {
    "unique": "S6.1",
    "bounded": "S6.1",
    "deterministic": "S6.1",
    "even_steps": "S6.2",
    "distance_only": "S6.3",
    "symmetric": "S6.3",
    "circles": "S6.4",
    "shift": "S6.4",
}
BY_KEY = {"scores", "weights"}  # whose columns are keys: all are shown


def positions_of(
    scheme: str, length: int = 64, width: int = 64, base: float = 10000.0, steps: int = 1, place: int = 0
) -> lessons.Positions:
    """Measures one scheme, and moves the code of one place by some steps."""
    report = next(study.run_positions([scheme], length, width, base, FAR))
    seen = study.view(study.make(scheme, length, width, base, 0), len(report.codes), width)
    moved = find_shift(seen, steps, place, base if scheme == "sinusoidal" else None)
    words = torch.randn(min(N_WORDS, length), width, generator=torch.Generator().manual_seed(0))
    return lessons.Positions(
        scheme=scheme,
        schemes=list(POSITION),
        door=report.door,
        length=length,
        width=width,
        base=base,
        places=seen.places.tolist(),
        codes=digits(report.codes),
        profile=digits(report.profile),
        laws=[_law(name, getattr(report, name)) for name in TAGS],
        waves=None if report.waves is None else _waves(report.waves),
        half_distance=report.half_distance,
        distinct_up_to=report.distinct_up_to,
        cost=_cost(report.cost),
        shift=None if moved is None else _shift(steps, moved),
        words=digits(words),
    )


def regression_of(
    seed: int = 0, n_train: int = 50, n_test: int = 100, noise: float = 0.5, steps: int = 200, w: float = 1.0
) -> lessons.Regression:
    """Runs the experiment, and predicts with a width of one's own choice besides."""
    found = run_regression(n_train, n_test, noise, steps, seed)
    kernel = Gaussian(bandwidth="fixed").double()
    kernel.w.data.fill_(w)
    chosen = pool(kernel, found.x_test, found.x, found.y)
    error = float((chosen - truth(found.x_test)).square().mean())
    return lessons.Regression(
        seed=seed,
        noise=noise,
        **{name: digits(getattr(found, name)) for name in ("x", "y", "x_test", "y_test")},
        average=_curve(found.average),
        fixed=_curve(found.fixed),
        learned=_curve(found.learned),
        chosen=_curve(Curve(chosen, error)),
        w=found.w,
        chosen_w=w,
        losses=found.losses,
        weights_fixed=digits(found.weights_before),
        weights_learned=digits(found.weights_after),
        weights_chosen=digits(look(kernel, found.x_test, found.x)),
    )


def walk_of(
    translator: Translator, model: str, text: str, layer: int = 0, head: int = 0, features: int = 12
) -> lessons.Walk:
    """Takes one sentence through one encoder layer, and shows some features of each vector."""
    parts = translator.segment([text])[0]
    if not parts:
        raise ValueError(f"a text to go through a layer must have words, got {text!r}")
    found = encoder_stages(translator.model, parts[0], layer, head)
    return lessons.Walk(
        model=model,
        text=translator.tokenizer.decode(parts[0], "src"),
        pieces=translator.tokenizer.pieces([*parts[0], EOS], "src"),
        layer=layer,
        head=head,
        n_layers=found.n_layers,
        n_heads=found.n_heads,
        d_model=found["input"].shape[1],
        d_head=found["query"].shape[1],
        d_ff=found["inner"].shape[1],
        norm_first=found.norm_first,
        scheme=found.scheme,
        stages=[_stage(stage, features) for stage in found.stages],
        error=number(found.error) or 0.0,
    )


def _stage(stage: Stage, features: int) -> lessons.Stage:
    width, columns = stage.values.shape[1], _shown(stage, features)
    return lessons.Stage(stage.name, width, columns, digits(stage.values[:, columns]), digits(stage.values.norm(dim=1)))


def _shown(stage: Stage, features: int) -> list[int]:
    """Gives the first features, which can be followed on; where most are zero, the largest of each token."""
    width = stage.values.shape[1]
    if stage.name == "inner":
        largest = stage.values.abs().argsort(dim=1, descending=True)  # of each token
        return sorted(list(dict.fromkeys(largest.T.flatten().tolist()))[:features])
    return list(range(width if stage.name in BY_KEY else min(width, features)))


def _law(name: str, law: study.Law) -> lessons.Law:
    return lessons.Law(name, TAGS[name], None if law.value is None else number(law.value), law.holds)


def _shift(steps: int, moved: Moved) -> lessons.Shift:
    codes = (digits(each) for each in (moved.before, moved.moved, moved.after))
    return lessons.Shift(steps, moved.exact, digits(moved.matrix), moved.place, *codes)


def _curve(curve: Curve) -> lessons.Curve:
    return lessons.Curve(digits(curve.prediction), curve.error)


def _cost(cost: study.Cost) -> lessons.Cost:
    return lessons.Cost(cost.scheme, cost.layer_added, cost.layer_concatenated)


def _waves(waves: study.Waves) -> lessons.Waves:
    return lessons.Waves(waves.shortest, waves.longest, waves.geometric, waves.pairs_per_halving)


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
