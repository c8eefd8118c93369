"""The studies as commands: regard study images, video, dialogue, …"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from typer import Argument, Option

from regard.cli.evaluate import read_sides
from regard.cli.options import Device, Json, Limit, ModelArgument, Out, Quick, Seed, Source, Target
from regard.cli.study_runner import HF, StudyOutput, read_hf_inputs, read_inputs
from regard.device import find_device
from regard.study import ablate as ablate_study
from regard.study import bottleneck as bottleneck_study
from regard.study import complexity as complexity_study
from regard.study import dialogue as dialogue_study
from regard.study import extrapolate as extrapolate_study
from regard.study import heads as heads_study
from regard.study import images as images_study
from regard.study import mean_split as mean_split_study
from regard.study import norms as norms_study
from regard.study import permutation as permutation_study
from regard.study import position_probe as position_probe_study
from regard.study import residuals as residuals_study
from regard.study import subspaces as subspaces_study
from regard.study import video as video_study
from regard.study.ablate_runs import PLAN, AblationPlan, read_plan, write_reversals
from regard.study.repeats import default_jobs, signature
from regard.terminal import escape, message, progress_bar

ENCODINGS = "Position encodings, alone or with their axes, as in grid_2d:row,column; by default the study's own."
SEEDS = "Number of seeds, from --seed on; by default 3, or 2 with --quick."
DATA = "Parallel text; by default the bundled sentences."
TOP = "Dimensions of both subspaces. May be repeated."
TASK = "chain (the next symbol depends on the last two) or copy (the target is the source)."
PROBED = "Bundled model's name, a folder, or hf: and the folder or name of a Hugging Face model."
SHUFFLED = "Position encodings of a text model; by default none, sinusoidal, learned, t5 and rotary."
TRANSLATOR = "Translator that reads sentences in order and shuffled: a bundled model's name, or a folder."
LAYERS = "Layers of the encoder. May be repeated."
FILE = "TOML file with base, variants and seeds; --quick has its own."
SHOW = "Run nothing; show the results in the folder, from any machine."

Encodings = Annotated[list[str] | None, Argument(help=ENCODINGS)]
Seeds = Annotated[int | None, Option(help=SEEDS)]
Data = Annotated[list[str] | None, Option(help=DATA)]


def seed_range(first: int, n: int | None, quick: bool) -> range:
    """Return the seeds of a study: so many from the first on."""
    return range(first, first + (n if n is not None else 2 if quick else 3))


@dataclass(frozen=True)
class TaskOptions:
    """What the studies of a classification task have in common on the command line."""

    encodings: list[str] | None
    quick: bool
    seeds: range
    device: str


def show_task(study: Any, output: StudyOutput, options: TaskOptions, *more: int) -> None:
    """Run the study of a task with its own settings and encodings, unless others are asked for, and show the result."""
    encodings, settings = options.encodings or study.ENCODINGS, study.QUICK if options.quick else study.SETTINGS
    device = torch.device(find_device(options.device))
    result = study.run(encodings, settings, options.seeds, device, progress_bar, *more)
    output.show(study, result, result.signature)


def images(
    encodings: Encodings = None,
    patch: Annotated[int | None, Option(help="Pixels along a side of a patch: 1, 2 or 4.", show_default="2")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    options = TaskOptions(encodings, quick, seed_range(seed, seeds, quick), device)
    show_task(images_study, StudyOutput(json_, out), options, images_study.SIDE if patch is None else patch)


def video(
    encodings: Encodings = None,
    directions: Annotated[int, Option(help="Number of directions in which a shape may move: 4 or 8.")] = 4,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    options = TaskOptions(encodings, quick, seed_range(seed, seeds, quick), device)
    show_task(video_study, StudyOutput(json_, out), options, directions)


def dialogue(
    encodings: Encodings = None,
    quick: Quick = False,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    show_task(
        dialogue_study,
        StudyOutput(json_, out),
        TaskOptions(encodings, quick, seed_range(seed, seeds, quick), device),
    )


def position_probe(
    model: Annotated[str, Argument(help=PROBED)] = "zh-en",
    data: Data = None,
    limit: Limit = 500,
    steps: Annotated[int | None, Option(min=1, help="Training steps of the small models.")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    output = StudyOutput(json_, out)
    settings = replace(position_probe_study.QUICK if quick else position_probe_study.SETTINGS, seed=seed)
    if model.startswith(HF):
        theirs = read_hf_inputs(model, data, limit, device)
        given = theirs.name, theirs.model, theirs.tokenizer, theirs.pairs
        result = position_probe_study.run_hf(*given, settings, progress_bar)
        signed = signature(theirs.device, seed=seed, model=theirs.name, pairs=result.n_pairs)
        return output.show(position_probe_study, result, signed)
    inputs = read_inputs(model, data, limit, device)
    if steps is not None:
        settings = replace(settings, small=replace(settings.small, steps=steps))
    result = position_probe_study.run(
        inputs.name, inputs.translator, inputs.pairs, settings, inputs.device, progress_bar
    )
    output.show(position_probe_study, result, inputs.sign(result, seed))


def subspaces(
    model: ModelArgument = "zh-en",
    data: Data = None,
    limit: Limit = 500,
    share: Annotated[float, Option(help="Share of the variance that a subspace holds.")] = 0.9,
    top: Annotated[list[int] | None, Option(min=1, help=TOP)] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    output = StudyOutput(json_, out)
    inputs = read_inputs(model, data, limit, device)
    settings = replace(subspaces_study.QUICK if quick else subspaces_study.SETTINGS, share=share, seed=seed)
    settings = replace(settings, tops=tuple(top)) if top else settings
    result = subspaces_study.run(inputs.name, inputs.translator, inputs.pairs, settings, progress_bar)
    output.show(subspaces_study, result, inputs.sign(result, seed))


def mean_split(
    model: ModelArgument = "zh-en",
    data: Data = None,
    limit: Limit = 500,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    output = StudyOutput(json_, out)
    inputs = read_inputs(model, data, min(limit, mean_split_study.QUICK_PAIRS) if quick else limit, device)
    result = mean_split_study.run(inputs.name, inputs.translator, inputs.pairs, seed, progress_bar)
    output.show(mean_split_study, result, inputs.sign(result, seed))


def heads(
    model: ModelArgument = "zh-en",
    data: Data = None,
    limit: Limit = 500,
    points: Annotated[int, Option(min=2, help="Numbers of heads at which quality is measured.")] = 11,
    orders: Annotated[int, Option(min=1, help="Number of random orders.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    output = StudyOutput(json_, out)
    inputs = read_inputs(model, data, min(limit, heads_study.QUICK_PAIRS) if quick else limit, device)
    settings = replace(heads_study.SETTINGS, points=points, random_orders=orders, seed=seed)
    if quick:
        settings = replace(heads_study.QUICK, points=min(points, heads_study.QUICK.points), seed=seed)
    result = heads_study.run(inputs.name, inputs.translator, inputs.pairs, settings, progress_bar)
    output.show(heads_study, result, inputs.sign(result, seed, decoding="greedy"))


def complexity(
    quick: Quick = False, seed: Seed = 0, device: Device = "auto", json_: Json = False, out: Out = None
) -> None:
    output, chosen = StudyOutput(json_, out), torch.device(find_device(device))
    settings = replace(complexity_study.SETTINGS[chosen.type], seed=seed)
    settings = complexity_study.quick(settings) if quick else settings
    result = complexity_study.run(settings, chosen, lambda what: message(f"[dim]measuring {what}[/]"))
    output.show(complexity_study, result, result.signature)


def extrapolate(
    encodings: Annotated[list[str] | None, Argument(help="Position encodings; all if none is named.")] = None,
    task: Annotated[str, Option(help=TASK)] = "chain",
    length: Annotated[int, Option(help="Longest training text n, in symbols.")] = 16,
    steps: Annotated[int | None, Option(help="Training steps of a model.", show_default="by task")] = None,
    seeds: Annotated[int, Option(help="Number of seeds, from --seed on.")] = 3,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    output = StudyOutput(json_, out)
    settings = extrapolate_study.make_settings(task, length, steps, seeds, seed, quick)
    result = extrapolate_study.run(encodings or [], settings, torch.device(find_device(device)), progress_bar)
    output.show(extrapolate_study, result, result.signature)


def bottleneck(
    data: Annotated[list[str] | None, Option(help="Parallel text to translate; by default symbols are copied.")] = None,
    source: Source = None,
    target: Target = None,
    limit: Limit = 20000,
    length: Annotated[int | None, Option(help="Longest copied text, in symbols.", show_default="24")] = None,
    width: Annotated[int | None, Option(help="Width of the states.", show_default="64")] = None,
    steps: Annotated[int | None, Option(help="Training steps of a model.", show_default="1200")] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds, from --seed on.", show_default="3")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    output = StudyOutput(json_, out)
    asked = {"longest": length, "d_model": width, "steps": steps, "n_seeds": seeds, "seed": seed}
    chosen = {name: value for name, value in asked.items() if value is not None}
    settings = replace(bottleneck_study.QUICK if quick else bottleneck_study.SETTINGS, **chosen)
    languages = source or "src", target or "tgt"
    pairs = read_sides(data, languages, limit=limit) if data else None
    result = bottleneck_study.run(pairs, languages, settings, torch.device(find_device(device)), progress_bar)
    output.show(bottleneck_study, result, result.signature)


def permutation(
    encodings: Annotated[list[str] | None, Argument(help=SHUFFLED)] = None,
    model: Annotated[str, Option("--model", "-m", help=TRANSLATOR)] = "zh-en",
    data: Data = None,
    limit: Limit = 500,
    steps: Annotated[int | None, Option(help="Training steps of a model.", show_default="800")] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds, from --seed on.", show_default="3")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    output = StudyOutput(json_, out)
    asked = {"steps": steps, "n_seeds": seeds, "seed": seed}
    chosen = {name: value for name, value in asked.items() if value is not None}
    settings = replace(permutation_study.QUICK if quick else permutation_study.SETTINGS, **chosen)
    inputs = read_inputs(model, data, limit, device)
    sentences = permutation_study.SentencePairs(inputs.name, inputs.translator, inputs.pairs)
    place = torch.device(find_device(device))
    result = permutation_study.run(encodings or [], sentences, settings, place, progress_bar)
    output.show(permutation_study, result, result.signature)


def norms(
    steps: Annotated[int | None, Option(help="Training steps of a model.", show_default="800")] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds, from --seed on.", show_default="3")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    show_small(norms_study, StudyOutput(json_, out), {"steps": steps, "n_seeds": seeds, "seed": seed}, quick, device)


def residuals(
    layers: Annotated[list[int] | None, Option(help=LAYERS, show_default="2, 4, 8, 12")] = None,
    steps: Annotated[int | None, Option(help="Training steps of a model.", show_default="600")] = None,
    seeds: Annotated[int | None, Option(help="Number of seeds, from --seed on.", show_default="3")] = None,
    quick: Quick = False,
    seed: Seed = 0,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    depths = tuple(layers) if layers else None
    asked = {"depths": depths, "steps": steps, "n_seeds": seeds, "seed": seed}
    show_small(residuals_study, StudyOutput(json_, out), asked, quick, device)


def show_small(study: Any, output: StudyOutput, asked: dict[str, Any], quick: bool, device: str) -> None:
    """Run a study of small models with its own settings, but for what is asked for, and show the result."""
    chosen = {name: value for name, value in asked.items() if value is not None}
    settings = replace(study.QUICK if quick else study.SETTINGS, **chosen)
    result = study.run(settings, torch.device(find_device(device)), progress_bar)
    output.show(study, result, result.signature)


def ablate(
    file: Annotated[Path | None, Argument(help=FILE)] = None,
    corpora: Annotated[Path | None, Option(help="Folder that the paths in the file are relative to.")] = None,
    folder: Annotated[Path | None, Option(help="Folder of the results.", show_default="runs/ablation")] = None,
    only: Annotated[list[str] | None, Option(help="Run this variant and the baseline only. May be repeated.")] = None,
    jobs: Annotated[int | None, Option(help="Runs at a time.", show_default="cores, or 8 on a GPU")] = None,
    quick: Quick = False,
    seed: Annotated[int, Option(help="Added to the seeds in the file.")] = 0,
    show: Annotated[bool, Option("--show", help=SHOW)] = False,
    device: Device = "auto",
    json_: Json = False,
    out: Out = None,
) -> None:
    output = StudyOutput(json_, out)
    kind = device if show else torch.device(find_device(device)).type
    plan, place = read_ablation(file, corpora, folder, quick)
    plan = ablate_study.with_device(plan, device, seed)
    if show:
        rows = ablate_study.matching_rows(plan, place)
        n_parallel = max(row.beside for row in rows)
    else:
        n_parallel = jobs or default_jobs(kind)
        run_ablation(plan, place, n_parallel, only or [])
        rows = ablate_study.read_rows(place)
    result = ablate_study.summarise(plan, rows)
    what = "--quick" if file is None else f"{file.as_posix()} --corpora CORPORA"
    command = f"regard study ablate {what} --device {kind} --jobs {n_parallel}"
    output.show(ablate_study, result, ablate_study.common_signature(result, plan), command)
    if not json_:
        for failure in ablate_study.failures(result):
            message(f"[red]failed:[/] {escape(failure)}")


def read_ablation(
    file: Path | None, corpora: Path | None, folder: Path | None, quick: bool
) -> tuple[AblationPlan, Path]:
    """Read what is compared, and return it with the folder of the results; --quick writes its own text there."""
    if quick == (file is not None):
        raise ValueError("name a file of variants, such as recipes/study/ablation.toml, or say --quick, not both")
    if file is not None:
        return read_plan(file, corpora), folder or Path("runs/ablation")
    place = folder or Path("runs/ablation-quick")
    write_reversals(place / "text")
    return read_plan(PLAN, place / "text"), place


def run_ablation(plan: AblationPlan, place: Path, n_parallel: int, only: list[str]) -> None:
    """Run what is missing, and report each run as it ends."""
    total = len(ablate_study.make_jobs(plan, place, n_parallel, only))
    message(f"[dim]{total} runs, {n_parallel} at a time, results in[/] {escape(str(place))}")
    try:
        for row in progress_bar(ablate_study.run(plan, place, n_parallel, only), total, "running"):
            report = row.error or f"BLEU {row.bleu_valid:.2f} on validation, {row.seconds:.0f} s"
            message(f"{escape(row.variant)}, seed {row.seed}: {escape(report)}")
    except KeyboardInterrupt:
        message("[yellow]stopped[/]: the same command resumes")
        raise typer.Exit(130) from None
