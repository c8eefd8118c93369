"""The commands that measure and draw the parts: regression, scores, positions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Json, Out, Seed, app
from regard.plot.terminal import escaped, print_json, print_tables, say, with_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@app.command()
def regression(
    points: Annotated[int, typer.Option(help="Training points.")] = 50,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise on y.")] = 0.5,
    steps: Annotated[int, typer.Option(help="Steps of gradient descent for w.")] = 200,
    seed: Seed = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    """Attention as kernel regression: average, fixed and learned Gaussian pooling of the same points."""
    check_out(out)
    from regard.study.regression import run_regression

    result = run_regression(n_train=points, noise=noise, steps=steps, seed=seed)
    if out is not None:
        from regard.study.regression import draw_regression

        keep_figure(draw_regression(result), out)
    if json_:
        return print_json(result)
    from regard.study.regression import regression_table

    print_tables(regression_table(result))


@app.command()
def scores(
    queries: Annotated[str, typer.Option(help="Words that look, split at spaces.")] = "Introduce Xi'an .",
    keys: Annotated[str, typer.Option(help="Words that are looked at.")] = "介绍 一下 西安 。",
    width: Annotated[int, typer.Option(help="Features of each word's random vector.")] = 64,
    seed: Seed = 0,
    json_: Json = False,
    out: Out = None,
) -> None:
    """What each score makes of the same queries and keys, and why the dot product is divided by √d."""
    check_out(out)
    from regard.study.scores import run_scores

    study = run_scores(queries.split(), keys.split(), width, seed)
    if out is not None:
        from regard.study.scores import draw_scores

        keep_figure(draw_scores(study), out)
    if json_:
        return print_json(study)
    from regard.study.scores import scores_table, variances_table

    print_tables(scores_table(study), variances_table(study))


@app.command()
def positions(
    names: Annotated[list[str] | None, typer.Argument(help="Schemes to examine; all if none is named.")] = None,
    length: Annotated[int, typer.Option(help="Number of positions.")] = 512,
    width: Annotated[int, typer.Option(help="Features of each code.")] = 128,
    base: Annotated[float, typer.Option(help="Base of the wavelengths.")] = 10000.0,
    json_: Json = False,
    out: Out = None,
) -> None:
    """What position schemes satisfy and what not: unique, bounded, shift by a linear map, and more."""
    check_out(out)
    from regard.config import choose
    from regard.position import POSITION
    from regard.study.positions import run_positions

    chosen = names or list(POSITION)
    for name in chosen:
        choose(POSITION, name, "position")
    reports = list(with_bar(run_positions(chosen, length, width, base), len(chosen), "measuring"))
    if out is not None:
        from regard.study.positions import draw_positions

        keep_figure(draw_positions(reports), out)
    if json_:
        return print_json({"length": length, "width": width, "base": base, "schemes": reports})
    from regard.study.positions import facts_table, positions_table

    facts = [facts_table(report) for report in reports] if len(reports) <= 3 else []
    print_tables(positions_table(reports, length, width), *facts)


def check_out(out: Path | None) -> None:
    """Refuses a figure that could not be saved before anything is computed."""
    if out is None:
        return
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ValueError("figures need matplotlib, which is not installed: pip install 'regard[plot]'")
    from regard.plot.style import check_ending

    check_ending(out)


def keep_figure(figure: "Figure", out: Path) -> None:
    from regard.plot.style import save_figure

    save_figure(figure, out)
    say(f"[dim]figure saved as[/] {escaped(str(out))}")
