"""The commands that make models: train, average."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.options import From, Set, To, app
from regard.plot.terminal import escaped, say


@app.command()
def train(
    out: Annotated[Path, typer.Option("--out", "-o", help="The run's folder.")],
    data: Annotated[
        list[str] | None,
        typer.Option(help="Parallel text: pairs.tsv, a.zh,a.en, x.jsonl, x.tmx, -; for a decoder any text."),
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Validation text; split off where none is given.")] = None,
    test: Annotated[list[str] | None, typer.Option(help="Test text, scored in the end.")] = None,
    init: Annotated[str | None, typer.Option(help="Begin with this model: a bundled one's name, or a folder.")] = None,
    preset: Annotated[str | None, typer.Option(help="tiny, small or base.", show_default="small")] = None,
    family: Annotated[
        str | None, typer.Option(help="transformer, recurrent or decoder.", show_default="transformer")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings as TOML; only what differs from the preset.")] = None,
    corpora: Annotated[Path | None, typer.Option(help="Folder in which the texts named by --config lie.")] = None,
    set_: Set = None,
    src: From = None,
    tgt: To = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in this folder.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run in this folder.")] = False,
) -> None:
    """From parallel text to a translator, or from text to a writer: learns pieces, trains, keeps the best model."""
    from regard.train.start import DataOptions, TrainOptions, start_run

    sources = DataOptions(tuple(data or ()), tuple(valid or ()), tuple(test or ()), src, tgt)
    made = start_run(
        out, sources, TrainOptions(preset, family, config, tuple(set_ or ()), init, corpora), resume, overwrite
    )
    from regard.train.distributed import read_world
    from regard.train.loop import RunStoppedError
    from regard.train.trainer import train as run_training

    speak = say if read_world().is_main else _keep_quiet
    try:
        outcome = run_training(made, out, _drawing(out))
    except RunStoppedError as stop:
        speak(f"[yellow]{stop}[/]: go on with regard train --out {escaped(str(out))} --resume")
        raise typer.Exit(128 + stop.number) from stop
    best = outcome.best
    found = f"BLEU {best['bleu']:.2f}" if "bleu" in best else f"loss {best['loss']:.4f}"
    speak(f"model in {escaped(str(out / 'model'))}, best validation {found}")


@app.command()
def average(
    runs: Annotated[list[Path], typer.Argument(help="A run's folder, or several runs or models of one shape.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the mean model.")],
    last: Annotated[int, typer.Option(help="How many of the newest checkpoints of a single run.")] = 5,
    shares: Annotated[list[float] | None, typer.Option(help="Of each of several models; 1 in all.")] = None,
) -> None:
    """Makes a model that is the mean of a run's last checkpoints, or of several models that grew from one another."""
    from regard.train.state import average_models, average_run

    if len(runs) == 1:
        n = average_run(runs[0], out, last)
        return say(f"mean of {n} checkpoints saved in {escaped(str(out))}")
    average_models(runs, shares or [1 / len(runs)] * len(runs), out)
    return say(f"mean of {len(runs)} models saved in {escaped(str(out))}")


def _drawing(out: Path) -> Any:
    """Gives what draws a run's curve into its folder, where matplotlib is installed."""
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        return lambda progress: None
    from regard.plot.style import save_figure
    from regard.plot.traces import draw_training

    return lambda progress: save_figure(draw_training(progress), out / "training.png")


def _keep_quiet(message: str) -> None:
    """Leaves the word to the leader of the team."""
