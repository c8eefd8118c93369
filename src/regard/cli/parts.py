"""Commands that measure and draw the parts: regression, scores, positions."""

from typing import Annotated

from typer import Argument, Option

from regard.cli.options import Json, Out, Seed
from regard.config import choose
from regard.plot.style import check_figure, save_and_report
from regard.position import POSITION
from regard.study.positions import draw_positions, facts_table, positions_table, run_positions
from regard.study.regression import draw_regression, regression_table, run_regression
from regard.study.scores import draw_scores, run_scores, scores_table, variances_table
from regard.terminal import print_json, print_tables, progress_bar

FEW = 3  # encodings up to which each gets a table of its own


def regression(
    points: Annotated[int, Option(help="Number of training points.")] = 50,
    noise: Annotated[float, Option(help="Standard deviation of the noise on y.")] = 0.5,
    steps: Annotated[int, Option(help="Gradient-descent steps for w.")] = 200,
    seed: Seed = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    check_figure(out)
    result = run_regression(n_train=points, noise=noise, steps=steps, seed=seed)
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
    names: Annotated[list[str] | None, Argument(help="Position encodings; all if none is named.")] = None,
    length: Annotated[int, Option(help="Number of positions.")] = 512,
    width: Annotated[int, Option(help="Features of each code.")] = 128,
    base: Annotated[float, Option(help="Base of the wavelengths.")] = 10000.0,
    json_: Json = False,
    out: Out = None,
) -> None:
    check_figure(out)
    chosen = names or list(POSITION)
    for name in chosen:
        choose(POSITION, name, "position")
    reports = list(progress_bar(run_positions(chosen, length, width, base), len(chosen), "measuring"))
    if out is not None:
        save_and_report(draw_positions(reports), out)
    if json_:
        return print_json({"length": length, "width": width, "base": base, "schemes": reports})
    facts = [facts_table(report) for report in reports] if len(reports) <= FEW else []
    print_tables(positions_table(reports, length, width), *facts)
