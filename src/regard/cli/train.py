"""Commands that make models: train, average."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.options import Set, Source, Target
from regard.config import DataSettings
from regard.plot.style import save_figure
from regard.terminal import escape, message
from regard.train.distributed import read_world
from regard.train.loop import RunStoppedError
from regard.train.run import lock_run
from regard.train.start import DataOptions, TrainOptions, start_run
from regard.train.state import Progress, average_models, average_run
from regard.train.trainer import train as run_training

DATA = "Training text: pairs.tsv, a.zh,a.en, x.jsonl, x.tmx or - for pairs; any text for a language model."
INIT = "Initialise from this model: a bundled model, the folder of a run, or a model folder."
CORPORA = "Folder that the paths in --config are relative to."
SHARES = "Weight of each model in the average; they must sum to 1."
NEW_DATA = "Resume although the training text has changed; the run keeps its tokenizer."
DEVICE = "cpu, cuda, or auto: a GPU if there is one. The same as --set train.device=…"


def train(
    out: Annotated[Path, Option("--out", "-o", help="Folder of the run.")],
    data: Annotated[list[str] | None, Option(help=DATA)] = None,
    valid: Annotated[list[str] | None, Option(help="Validation text; by default split off the training text.")] = None,
    test: Annotated[list[str] | None, Option(help="Test text, translated and scored at the end.")] = None,
    init: Annotated[str | None, Option(help=INIT)] = None,
    preset: Annotated[str | None, Option(help="Model size: tiny, small or base.", show_default="small")] = None,
    family: Annotated[
        str | None, Option(help="Architecture: transformer, recurrent or decoder.", show_default="transformer")
    ] = None,
    config: Annotated[Path | None, Option(help="TOML file with settings that differ from the preset.")] = None,
    corpora: Annotated[Path | None, Option(help=CORPORA)] = None,
    set_: Set = None,
    src: Source = None,
    tgt: Target = None,
    device: Annotated[str | None, Option(help=DEVICE, show_default="auto")] = None,
    resume: Annotated[bool, Option("--resume", help="Resume the run in this folder.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in this folder.")] = False,
    accept_new_data: Annotated[bool, Option("--accept-new-data", help=NEW_DATA)] = False,
) -> None:
    """Learns the vocabulary, trains, and keeps the model with the best validation score in OUT/model."""
    sources = DataOptions(tuple(data or ()), tuple(valid or ()), tuple(test or ()), src, tgt)
    sets = (*(set_ or ()), *([] if device is None else [f"train.device={device}"]))
    options = TrainOptions(preset, family, config, sets, init, corpora)
    world = read_world()
    try:
        with lock_run(out, world):
            settings = start_run(out, sources, options, resume, overwrite)
            if world.is_main:
                message(describe_languages(settings.data))
            outcome = run_training(settings, out, training_curve(out), accept_new_data)
    except RunStoppedError as stop:
        if world.is_main:
            message(f"[yellow]{stop}[/]: resume with regard train --out {escape(str(out))} --resume")
        raise typer.Exit(128 + stop.number) from stop
    best = outcome.best
    score = f"BLEU {best['bleu']:.2f}" if "bleu" in best else f"loss {best['loss']:.4f}"
    if world.is_main:
        message(f"model in {escape(str(out / 'model'))}, best validation {score}")


def describe_languages(data: DataSettings) -> str:
    """Say which languages a run stores, by which a server chooses a model, and how to name those not recognised."""
    if data.form != "pairs":
        return f"language {escape(data.tgt_lang)}"
    sides = (("--from", data.src_lang, DataSettings.src_lang), ("--to", data.tgt_lang, DataSettings.tgt_lang))
    missing = [option for option, language, unnamed in sides if language == unnamed]
    way_out = f"; [yellow]not recognised by script: name with {' and '.join(missing)}[/]" if missing else ""
    return f"languages {escape(data.src_lang)} → {escape(data.tgt_lang)}{way_out}"


def average(
    runs: Annotated[list[Path], Argument(help="Folder of a run, or several runs or models of one shape.")],
    out: Annotated[Path, Option("--out", "-o", help="Folder for the averaged model.")],
    last: Annotated[int, Option(help="Number of checkpoints to average, the newest, of a single run.")] = 5,
    shares: Annotated[list[float] | None, Option(help=SHARES, show_default="equal")] = None,
) -> None:
    if len(runs) == 1:
        n = average_run(runs[0], out, last)
        return message(f"mean of {n} checkpoints saved in {escape(str(out))}")
    average_models(runs, shares or [1 / len(runs)] * len(runs), out)
    return message(f"mean of {len(runs)} models saved in {escape(str(out))}")


def training_curve(out: Path) -> Callable[[Progress], None]:
    """Return what draws a run's curves into its folder; where matplotlib is not installed it does nothing."""
    if find_spec("matplotlib") is None:
        return lambda progress: None
    from regard.plot.traces import draw_training

    return lambda progress: save_figure(draw_training(progress), out / "training.png")
