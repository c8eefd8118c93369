"""The command line: argv becomes one call."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.plot.terminal import as_json, escaped, print_json, print_tables, say, with_bar, writing

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
Model = Annotated[Path, typer.Option("--model", "-m", help="A run's folder, or the model folder inside it.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="One setting, such as train.lr=3e-4. May be repeated.")]
Seed = Annotated[int, typer.Option(help="Draws the random numbers; the same seed gives the same result.")]


def main() -> None:
    """Runs one command; a user's mistake ends in one line and exit code 2."""
    try:
        app()
    except ValueError as error:
        say(f"[bold red]error:[/] {escaped(str(error))}")
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, and needs no message about it
        sys.exit(141)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from regard import __version__

        print(f"regard {__version__}")
        raise typer.Exit


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder.")],
    data: Annotated[
        list[str] | None, typer.Option(help="Parallel text: pairs.tsv, a.zh,a.en, x.jsonl, x.tmx, -.")
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Validation text; split off where none is given.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test text, scored in the end.")] = None,
    preset: Annotated[str, typer.Option(help="tiny, small or base.")] = "small",
    family: Annotated[str, typer.Option(help="transformer or recurrent.")] = "transformer",
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; only what differs from the preset.")] = None,
    set_: Set = None,
    src: Annotated[str | None, typer.Option("--from", help="Source language, such as zh.")] = None,
    tgt: Annotated[str | None, typer.Option("--to", help="Target language, such as en.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in this folder.")] = False,
) -> None:
    """From parallel text to a translator: reads, learns pieces, trains, validates, keeps the best model."""
    from regard.train.start import Sources, start_run

    sources = Sources(tuple(data or ()), tuple(valid or ()), tuple(test or ()), src, tgt)
    made = start_run(out, sources, (preset, family, config, tuple(set_ or ())), resume, overwrite)
    from regard.train.loop import RunStoppedError
    from regard.train.train import train as run_training

    try:
        outcome = run_training(made, out, _drawing(out))
    except RunStoppedError as stop:
        say(f"[yellow]{stop}[/]: go on with regard train --out {escaped(str(out))} --resume")
        raise typer.Exit(128 + stop.number) from stop
    say(f"model in {escaped(str(out / 'model'))}, best validation BLEU {outcome.best['bleu']:.2f}")


@app.command()
def translate(
    model: Model,
    text: Annotated[
        list[str] | None, typer.Argument(help="Sentences; without any, lines are read from --input.")
    ] = None,
    input_: Annotated[str, typer.Option("--input", "-i", help="A file with one sentence a line; - is stdin.")] = "-",
    output: Annotated[Path | None, typer.Option("--output", "-O", help="Write here instead of to stdout.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="One decoding setting, such as beam=1.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights: quicker on a CPU, almost as good.")] = False,
    n_best: Annotated[int | None, typer.Option(help="Translations given for each sentence.")] = None,
    json_: Json = False,
) -> None:
    """Translates sentences, files and pipes, line by line."""
    from regard.decode.load import load
    from regard.text.lines import read_lines

    translator = load(model, "int8" if int8 else "float32")
    chosen = _decoding(translator.settings, beam, n_best, set_)
    lines = iter(text) if text else read_lines(input_)
    with writing(output) as write:
        for found in with_bar(translator.stream(lines, chosen), None, "translating"):
            write(_as_line(found, chosen.n_best, json_))


@app.command()
def evaluate(
    model: Model,
    data: Annotated[list[str], typer.Option(help="Parallel text with the references.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="One decoding setting, such as beam=1.")] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    int8: Annotated[bool, typer.Option("--int8", help="8-bit weights: quicker on a CPU, almost as good.")] = False,
    json_: Json = False,
) -> None:
    """Translates the source side of parallel text and scores it: BLEU and chrF by sacreBLEU, with signatures."""
    from regard.decode.load import load
    from regard.score.bleu import score
    from regard.text.corpus import read_pairs

    translator = load(model, "int8" if int8 else "float32")
    pairs = list(read_pairs(data, translator.src_lang, translator.tgt_lang))
    chosen = _decoding(translator.settings, beam, None, set_)
    stream = translator.stream((pair.src for pair in pairs), chosen)
    outputs = [found.text for found in with_bar(stream, len(pairs), "translating")]
    result = score(outputs, [pair.tgt for pair in pairs], translator.tgt_lang)
    if json_:
        return print_json(result)
    from regard.plot.table import result_table

    print_tables(result_table(result))


@app.command()
def average(
    run: Annotated[Path, typer.Argument(help="A run's folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the mean model.")],
    last: Annotated[int, typer.Option(help="How many of the newest checkpoints.")] = 5,
) -> None:
    """Makes a model that is the mean of a run's last checkpoints."""
    from regard.train.average import average_run

    n = average_run(run, out, last)
    say(f"mean of {n} checkpoints saved in {escaped(str(out))}")


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="A run's folder, or the model folder inside it.")],
    json_: Json = False,
) -> None:
    """Shows what a model is: sizes, parts, words, scores."""
    from regard.checkpoint import describe

    found = describe(model)
    if json_:
        return print_json(found)
    from regard.plot.table import info_table

    print_tables(info_table(found))


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
        return print_json(result)
    from regard.plot.table import regression_table

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
    _check_out(out)
    from regard.study.scores import run_scores

    study = run_scores(queries.split(), keys.split(), width, seed)
    if out is not None:
        from regard.plot.scores import draw_scores

        _save(draw_scores(study), out)
    if json_:
        return print_json(study)
    from regard.plot.table import scores_table, variances_table

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
    _check_out(out)
    from regard.config import choose
    from regard.position import POSITION
    from regard.study.positions import run_positions

    chosen = names or list(POSITION)
    for name in chosen:
        choose(POSITION, name, "position")
    reports = list(with_bar(run_positions(chosen, length, width, base), len(chosen), "measuring"))
    if out is not None:
        from regard.plot.positions import draw_positions

        _save(draw_positions(reports), out)
    if json_:
        return print_json({"length": length, "width": width, "base": base, "schemes": reports})
    from regard.plot.table import facts_table, positions_table

    facts = [facts_table(report) for report in reports] if len(reports) <= 3 else []
    print_tables(positions_table(reports, length, width), *facts)


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
    say(f"[dim]figure saved as[/] {escaped(str(out))}")


def _drawing(out: Path) -> Any:
    """Gives what draws a run's curve into its folder, where matplotlib is installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return lambda progress: None
    from regard.plot.figure import save_figure
    from regard.plot.training import draw_training

    return lambda progress: save_figure(draw_training(progress), out / "training.png")


def _decoding(default: Any, beam: int | None, n_best: int | None, set_: list[str] | None) -> Any:
    """Gives decoding settings: the model's own, with what the command line says otherwise."""
    from dataclasses import asdict

    from regard.config import DecodeSettings, merged, override, settings

    named: dict[str, Any] = {key: value for key, value in (("beam", beam), ("n_best", n_best)) if value is not None}
    if beam == 1:
        named["method"] = "greedy"
    given = {key: value for key, value in asdict(default).items() if value is not None}
    return settings(DecodeSettings, merged(given, named, *(override(text) for text in set_ or ())))


def _as_line(found: Any, n_best: int, json_: bool) -> str:
    if json_:
        return as_json(found)
    if n_best == 1:
        return found.text
    return "\n".join(f"{other.score:.4f}\t{other.text}" for other in found.alternatives)
