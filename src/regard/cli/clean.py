"""The command clean: which pairs of parallel text are worth learning from, and why the others are not."""

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated

from typer import Option

from regard.clean import STDOUT, CleanOutputs, LearnReader
from regard.clean import clean as run_clean
from regard.clean.learning import CleanSettings
from regard.clean.rules import ALWAYS, REASONS
from regard.clean.workers import free_cores
from regard.cli.options import Device, Json, Seed, Source, Target
from regard.extras import needed_by
from regard.pipeline import load_translator
from regard.terminal import escape, message, open_output, print_json, print_tables, to_json_line

DATA = "Parallel text: pairs.tsv, a.zh,a.en, x.jsonl, x.tmx or -. May be repeated; pairs keep their order."
OUT = "Where to write what is kept, as TSV: a file, compressed as its extension says, or - for standard output."
REJECTED = "Where to write what is dropped: reason, place, source, target."
REPORT = "Where to write counts, samples and estimated shares of noise, as JSON."
SKIP = f"A rule to leave out: {', '.join(reason for reason in REASONS if reason not in ALWAYS)}. May be repeated."
THRESHOLD = "Probability of noise from which a pair is dropped; less drops more."
SCORES = (
    "Add columns: probability of noise, log-odds of another language for source and target, dual cross-entropy if "
    "there are models."
)
MODEL = "A model of the text's direction, which reads what is in doubt; with --reverse-model."
REVERSE = "A model of the other direction."


def clean(
    data: Annotated[list[str], Option(help=DATA)],
    out: Annotated[Path, Option("--out", "-o", help=OUT)],
    rejected: Annotated[Path | None, Option(help=REJECTED)] = None,
    report: Annotated[Path | None, Option(help=REPORT)] = None,
    src: Source = None,
    tgt: Target = None,
    skip: Annotated[list[str] | None, Option(help=SKIP)] = None,
    threshold: Annotated[float, Option(help=THRESHOLD)] = CleanSettings.threshold,
    max_chars: Annotated[int, Option(help="Characters that a side may have.")] = CleanSettings.max_chars,
    keep_score: Annotated[bool, Option("--keep-score", help=SCORES)] = False,
    model: Annotated[str | None, Option("--model", "-m", help=MODEL)] = None,
    reverse_model: Annotated[str | None, Option(help=REVERSE)] = None,
    device: Device = "auto",
    workers: Annotated[int | None, Option(help="Processes.", show_default="the free cores")] = None,
    seed: Seed = 0,
    json_: Json = False,
) -> None:
    """What is normal is learned from the text itself: lengths, languages, which words go together."""
    for path in (out, rejected, report):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"the folder for {path.name!r} does not exist: {path.parent}")
    check_paths(out, rejected, report, json_)
    settings = CleanSettings((src, tgt), frozenset(skip or ()), max_chars, threshold, seed)
    outputs = CleanOutputs(out, rejected, keep_score)
    reader = open_reader(model, reverse_model, device)
    found = run_clean(data, outputs, settings, workers or free_cores(), _say, reader)
    if report is not None:
        with open_output(report) as write:
            write(to_json_line(found.to_json()))
    if json_:
        return print_json(found.to_json())
    if out == STDOUT:
        message(f"{found.read:,} pairs read, {found.kept:,} kept")
    else:
        print_tables(found.table())


def check_paths(out: Path, rejected: Path | None, report: Path | None, json_: bool) -> None:
    """Raise ValueError for two results in one place."""
    places = [path for path in (out, rejected, report) if path is not None]
    for path in places:
        if places.count(path) > 1:
            raise ValueError(f"--out, --rejected and --report must be different files, got {str(path)!r} twice")
    if json_ and out == STDOUT:
        raise ValueError("--json and the pairs cannot both go to standard output, got --out -: name a file")


def open_reader(model: str | None, reverse: str | None, device: str) -> LearnReader | None:
    """Return how to learn to read what is in doubt with two models, if there are any."""
    if model is None and reverse is None:
        return None
    if model is None or reverse is None:
        given = f"--model {model}" if reverse is None else f"--reverse-model {reverse}"
        raise ValueError(f"two models, one for each direction, must be given, got {given} alone: name the other")
    with needed_by("reading with models"):
        dual = import_module("regard.clean.cross_entropy")  # PyTorch
        models = dual.DualModels(load_translator(model, device=device), load_translator(reverse, device=device))
    return partial(dual.learn_to_reread, models)


def _say(text: str) -> None:
    message(f"[dim]{escape(text)}[/]")
