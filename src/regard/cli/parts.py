"""Commands that measure and draw the parts: regression, scores, positions."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from regard.cli.options import Json, Out, Seed
from regard.config import choose
from regard.plot.style import check_figure, save_and_report
from regard.position import POSITION
from regard.study.position_views import BASE, LENGTH, MEASURED, WIDTH, check_shifts, model_schemes
from regard.study.positions import (
    draw_positions,
    facts_table,
    measure,
    positions_table,
    run_positions,
    shifts_table,
)
from regard.study.regression import (
    Curve,
    draw_regression,
    read_formula,
    read_points,
    regression_table,
    run_on_points,
    run_regression,
)
from regard.study.scores import draw_scores, run_scores, scores_table, variances_table
from regard.terminal import print_json, print_tables, progress_bar

FORMULA = "A formula of x: numbers, pi, e, + - * / **, sin, cos, tan, tanh, exp, log, sqrt, abs."
NAMES = "Position encodings, also difference:half_wave, difference:index, sines; all of the table if none is named."
OF_MODEL = "Measure the trained encodings of this model: a bundled one, a run's folder, or a model folder."
LENGTHS = f"{LENGTH}, or the model's table"
FEW = 3  # encodings up to which each gets a table of its own


def regression(
    data: Annotated[Path | None, Option(help="Points of your own, x and y on each line.")] = None,
    function: Annotated[str | None, Option(help=FORMULA, show_default="2*sin(x) + x**0.8")] = None,
    span: Annotated[tuple[float, float], Option("--range", help="Where the function is drawn from.")] = (0.0, 5.0),
    points: Annotated[int, Option(help="Number of training points.")] = 50,
    noise: Annotated[float, Option(help="Standard deviation of the noise on y.")] = 0.5,
    fit: Annotated[str, Option(help="How w is learned: adam, or textbook (5 steps of SGD at 0.5).")] = "adam",
    steps: Annotated[int | None, Option(help="Gradient-descent steps for w.", show_default="200, or 5")] = None,
    seed: Seed = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    check_figure(out)
    if data is not None and function is not None:
        raise ValueError(f"points come from a file or from a function, got {data} and {function!r}: leave one out")
    if data is not None:
        result = run_on_points(read_points(data), data.name, steps=steps, fit=fit)
    else:
        curve = read_formula(function or Curve.name, *span)
        result = run_regression(n_train=points, noise=noise, steps=steps, seed=seed, fit=fit, curve=curve)
    if out is not None:
        save_and_report(draw_regression(result), out)
    print_json(result) if json_ else print_tables(regression_table(result))


def scores(
    queries: Annotated[str, Option(help="Words that attend, separated by spaces.")] = "Introduce Xi'an .",
    keys: Annotated[str, Option(help="Words that are attended to.")] = "介绍 一下 西安 。",
    width: Annotated[int, Option(help="Features of each word's random vector.")] = 64,
    seed: Seed = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    check_figure(out)
    result = run_scores(queries.split(), keys.split(), width, seed)
    if out is not None:
        save_and_report(draw_scores(result), out)
    print_json(result) if json_ else print_tables(scores_table(result), variances_table(result))


def positions(
    names: Annotated[list[str] | None, Argument(help=NAMES)] = None,
    model: Annotated[str | None, Option("--model", "-m", help=OF_MODEL)] = None,
    length: Annotated[int | None, Option(help="Number of positions.", show_default=LENGTHS)] = None,
    width: Annotated[int | None, Option(help="Features of each code.", show_default=str(WIDTH))] = None,
    base: Annotated[float | None, Option(help="Base of the wavelengths.", show_default=f"{BASE:g}")] = None,
    shift: Annotated[list[int] | None, Option(help="Steps k of the linear shift. May be repeated.")] = None,
    json_: Json = False,
    out: Out = None,
) -> None:
    check_figure(out)
    steps = shift or [1]
    if model is not None:
        refuse_with_model(names or None, width, base)
        schemes = model_schemes(model, length)
        n, width = schemes[0].length, schemes[0].d_model
        check_shifts(steps, n)
        found, total = (measure(scheme, shifts=steps) for scheme in schemes), len(schemes)
    else:
        n, width = LENGTH if length is None else length, WIDTH if width is None else width
        chosen, base = names or list(POSITION), BASE if base is None else base
        for name in chosen:
            choose(MEASURED, name, "position")
        found, total = run_positions(chosen, n, width, base, shifts=steps), len(chosen)
    reports = list(progress_bar(found, total, "measuring"))
    if out is not None:
        save_and_report(draw_positions(reports), out)
    if json_:
        return print_json({"length": n, "width": width, "base": base, "schemes": reports})
    facts = [facts_table(report) for report in reports] if len(reports) <= FEW else []
    several = [shifts_table(reports)] if len(steps) > 1 else []
    print_tables(positions_table(reports, n, width), *several, *facts)


def refuse_with_model(names: list[str] | None, width: int | None, base: float | None) -> None:
    """Raise ValueError for options that a model has settled."""
    for what, value in (("encodings", names), ("--width", width), ("--base", base)):
        if value is not None:
            raise ValueError(f"a model brings its own encodings, width and base, got {what} {value}: leave them out")
