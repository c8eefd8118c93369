"""The command line: argv becomes one call."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

app = typer.Typer(
    name="regard",
    help="Attention: the parts, measured and drawn. Each command prints a table, or --json, and draws with --out.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Save the figure here: .png, .svg or .pdf.")]
Seed = Annotated[int, typer.Option(help="Draws the random numbers; the same seed gives the same result.")]


def main() -> None:
    """Runs one command; a user's mistake ends in one line and exit code 2."""
    try:
        app()
    except ValueError as error:
        _say(f"[bold red]error:[/] {_escaped(str(error))}")
        sys.exit(2)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


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
    _check_out(out)
    from regard.study.regression import run_regression

    result = run_regression(n_train=points, noise=noise, steps=steps, seed=seed)
    if out is not None:
        from regard.plot.regression import draw_regression

        _save(draw_regression(result), out)
    if json_:
        return _print_json(result)
    from regard.plot.table import regression_table

    _print_tables(regression_table(result))


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
    _check_out(out)
    from regard.study.scores import run_scores

    study = run_scores(queries.split(), keys.split(), width, seed)
    if out is not None:
        from regard.plot.scores import draw_scores

        _save(draw_scores(study), out)
    if json_:
        return _print_json(study)
    from regard.plot.table import scores_table, variances_table

    _print_tables(scores_table(study), variances_table(study))


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
    _check_out(out)
    from regard.config import choose
    from regard.position import POSITION
    from regard.study.positions import run_positions

    chosen = names or list(POSITION)
    for name in chosen:
        choose(POSITION, name, "position")
    reports = list(_with_bar(run_positions(chosen, length, width, base), len(chosen), "measuring"))
    if out is not None:
        from regard.plot.positions import draw_positions

        _save(draw_positions(reports), out)
    if json_:
        return _print_json({"length": length, "width": width, "base": base, "schemes": reports})
    from regard.plot.table import facts_table, positions_table

    facts = [facts_table(report) for report in reports] if len(reports) <= 3 else []
    _print_tables(positions_table(reports, length, width), *facts)


def _check_out(out: Path | None) -> None:
    """Refuses a figure that could not be saved before anything is computed."""
    if out is None:
        return
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise ValueError("figures need matplotlib, which is not installed: pip install 'regard[plot]'")
    from regard.plot.figure import check_ending

    check_ending(out)


def _save(figure: "Figure", out: Path) -> None:
    from regard.plot.figure import save_figure

    save_figure(figure, out)
    _say(f"[dim]figure saved as[/] {_escaped(str(out))}")


def _with_bar(items: Any, total: int, what: str) -> Any:
    """Shows progress on the error stream, so that results can be piped."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, what, total=total, console=console, transient=True, disable=not console.is_terminal)


def _print_json(result: Any) -> None:
    from regard.study.record import plain

    print(json.dumps(plain(result), ensure_ascii=False))


def _print_tables(*tables: Any) -> None:
    from rich.console import Console

    console = Console()
    for table in tables:
        console.print(table)
        console.print()


def _say(message: str) -> None:
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print(message)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
