"""Lessons: a position encoding and its laws, attention as regression, an encoder layer step by step."""

from collections.abc import Callable
from dataclasses import astuple

import torch

from regard.attention import Gaussian
from regard.padding import EOS
from regard.pipeline.translator import Translator
from regard.position import POSITION
from regard.serve.schema_api import (
    CostJson,
    CurveJson,
    LawJson,
    LayerSteps,
    Positions,
    RegressionJson,
    Shift,
    StageJson,
    WavesJson,
)
from regard.serve.serialize import round_number, round_numbers
from regard.study import positions as study
from regard.study.position_views import Moved, distinct_up_to, find_shift, make, view
from regard.study.regression import Pooling, attention_weights, pool, run_regression, truth
from regard.trace.residual import EncoderStage, encoder_stages

MAX_COMPARED = 64 * study.FAR  # numbers in the codes that are compared: they take about a second
N_WORDS = 16
LAWS = ("unique", "bounded", "deterministic", "even_steps", "distance_only", "symmetric", "circles", "shift")
BY_KEY = {"scores", "weights"}  # stages whose columns are keys: all are shown


def compare_codes(scheme: str, width: int, base: float) -> int | None:
    """Return the last position up to which all codes of a scheme differ, of those that are compared."""
    return distinct_up_to(make(scheme, study.MIN_LENGTH, width, base, 0), compared_up_to(width), width)


def compared_up_to(width: int) -> int:
    """Return the last position that is compared: as far as `regard positions` goes, if codes are not wide."""
    return min(study.FAR, MAX_COMPARED // width)


def position_lesson(
    scheme: str,
    length: int = 64,
    width: int = 64,
    base: float = 10000.0,
    steps: int = 1,
    place: int = 0,
    compare: Callable[[str, int, float], int | None] = compare_codes,
) -> Positions:
    """Measure a scheme against the laws, and shift the code of one position by some steps."""
    report = next(study.run_positions([scheme], length, width, base, far=0))
    seen = view(make(scheme, length, width, base, 0), len(report.codes), width)
    moved = find_shift(seen, steps, place, base if scheme == "sinusoidal" else None)
    words = torch.randn(min(N_WORDS, length), width, generator=torch.Generator().manual_seed(0))
    return Positions(
        scheme=scheme,
        schemes=list(POSITION),
        door=report.door,
        length=length,
        width=width,
        base=base,
        places=seen.positions.tolist(),
        codes=round_numbers(report.codes),
        profile=round_numbers(report.profile),
        laws=[_law(name, getattr(report, name)) for name in LAWS],
        waves=None if report.waves is None else WavesJson(*astuple(report.waves)),
        half_distance=report.half_distance,
        distinct_up_to=None if report.distinct_up_to is None else compare(scheme, width, base),
        compared_up_to=compared_up_to(width),
        cost=CostJson(*astuple(report.cost)),
        shift=None if moved is None else _shift(steps, moved),
        words=round_numbers(words),
    )


def regression_lesson(
    seed: int = 0, n_train: int = 50, n_test: int = 100, noise: float = 0.5, steps: int = 200, w: float = 1.0
) -> RegressionJson:
    """Run the study, and predict with a chosen w besides."""
    result = run_regression(n_train, n_test, noise, steps, seed)
    kernel = Gaussian(bandwidth="fixed").double()
    kernel.w.data.fill_(w)
    chosen = pool(kernel, result.x_test, result.x, result.y)
    error = float((chosen - truth(result.x_test)).square().mean())
    return RegressionJson(
        seed=seed,
        noise=noise,
        **{name: round_numbers(getattr(result, name)) for name in ("x", "y", "x_test", "y_test")},
        average=_curve(result.average),
        fixed=_curve(result.fixed),
        learned=_curve(result.learned),
        chosen=_curve(Pooling(chosen, error)),
        w=result.w,
        chosen_w=w,
        losses=result.losses,
        weights_fixed=round_numbers(result.weights_before),
        weights_learned=round_numbers(result.weights_after),
        weights_chosen=round_numbers(attention_weights(kernel, result.x_test, result.x)),
    )


def layer_lesson(
    translator: Translator, model: str, text: str, layer: int = 0, head: int = 0, features: int = 12
) -> LayerSteps:
    """Compute one encoder layer step by step, and return some features of each vector."""
    sentences = translator.segment([text])[0].parts
    if not sentences:
        raise ValueError(f"text must contain words, got {text!r}")
    ids = sentences[0]
    stages = encoder_stages(translator.model, ids, layer, head)
    return LayerSteps(
        model=model,
        text=translator.tokenizer.decode(ids, "src"),
        pieces=translator.tokenizer.pieces([*ids, EOS], "src"),
        layer=layer,
        head=head,
        n_layers=stages.n_layers,
        n_heads=stages.n_heads,
        d_model=stages["input"].shape[1],
        d_head=stages["query"].shape[1],
        d_ff=stages["inner"].shape[1],
        norm_first=stages.norm_first,
        scheme=stages.scheme,
        stages=[_stage(stage, features) for stage in stages.stages],
        error=round_number(stages.error) or 0.0,
    )


def _stage(stage: EncoderStage, features: int) -> StageJson:
    width, columns = stage.values.shape[1], _columns(stage, features)
    return StageJson(
        stage.name, width, columns, round_numbers(stage.values[:, columns]), round_numbers(stage.values.norm(dim=1))
    )


def _columns(stage: EncoderStage, features: int) -> list[int]:
    """Return the first features; of the inner layer, where most are zero, the largest of each token."""
    width = stage.values.shape[1]
    if stage.name == "inner":
        largest = stage.values.abs().argsort(dim=1, descending=True)  # of each token
        return sorted(list(dict.fromkeys(largest.T.flatten().tolist()))[:features])
    return list(range(width if stage.name in BY_KEY else min(width, features)))


def _law(name: str, law: study.LawCheck) -> LawJson:
    return LawJson(name, None if law.value is None else round_number(law.value), law.holds)


def _shift(steps: int, moved: Moved) -> Shift:
    codes = (round_numbers(each) for each in (moved.before, moved.moved, moved.after))
    return Shift(steps, moved.exact, round_numbers(moved.matrix), moved.place, *codes)


def _curve(curve: Pooling) -> CurveJson:
    return CurveJson(round_numbers(curve.prediction), curve.error)
