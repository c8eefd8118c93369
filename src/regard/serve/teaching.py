"""Studies become what the page is told for its lessons."""

import torch

from regard.attention import Gaussian
from regard.batch import EOS
from regard.decode.translator import Translator
from regard.position import POSITION
from regard.serve import lessons
from regard.serve.numbers import digits, number
from regard.study import positions as study
from regard.study.regression import Curve, look, pool, run_regression, truth
from regard.study.shift import Moved, find_shift
from regard.trace.stages import Stage, encoder_stages

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
    parts = translator.parts([text], 1)[0]
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
