"""`regard study extrapolate`: position encodings on texts longer than those of training."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table

from regard.build import build_model
from regard.config import ModelSettings, PartSettings, choose
from regard.model import Seq2Seq
from regard.plot.style import in_style, new_figure
from regard.study.repeats import MeanStd, mean_std, signature
from regard.study.sequences import Chain, Copy, Sequences, eval_batch, fit, token_losses, training_batch
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TASKS: dict[str, Sequences] = {"chain": Chain(), "copy": Copy()}
FOLDS = (1, 2, 3, 4)  # multiples of n
EVAL_ROWS = 64  # texts in a batch of the evaluation


@dataclass(frozen=True)
class ExtrapolateSettings:
    """The models and their training."""

    task: str = "chain"
    longest: int = 16  # n, in symbols
    steps: int = 300
    rows: int = 64  # texts in a batch
    judged: int = 256  # test texts of each length
    lr: float = 8e-3
    n_seeds: int = 3
    seed: int = 0  # of the first
    n_encoder_layers: int = 1
    n_decoder_layers: int = 2
    d_model: int = 32
    n_heads: int = 4
    d_ff: int = 64


# With which each task can be learned; a copy needs two encoder layers, to know the neighbours of a symbol.
SETTINGS = {
    "chain": ExtrapolateSettings(),
    "copy": ExtrapolateSettings(
        "copy", steps=1500, lr=2e-3, n_encoder_layers=2, n_decoder_layers=2, d_model=64, d_ff=128
    ),
}
QUICK = {"n_seeds": 1, "judged": 64, "steps": 60}


def make_settings(
    task: str, longest: int, steps: int | None, n_seeds: int, seed: int, quick: bool
) -> ExtrapolateSettings:
    """Return settings with which a task can be learned, or with `quick` a check that it works."""
    settings = replace(choose(SETTINGS, task, "task"), longest=longest, n_seeds=n_seeds, seed=seed)
    settings = replace(settings, **QUICK) if quick else settings
    return settings if steps is None else replace(settings, steps=steps)


def schemes(longest: int) -> dict[str, PartSettings]:
    """Return the encodings that a text model can use; tables are as long as they must be.

    A learned table ends with the training texts, with one more position for BOS. The half wave needs to know the
    longest text there will ever be, and is given it.
    """
    return {
        "none": PartSettings("none"),
        "index": PartSettings("index"),
        "sinusoidal": PartSettings("sinusoidal"),
        "sinusoidal beside": PartSettings("sinusoidal", {"join": "concatenate"}),
        "half_wave": PartSettings("half_wave", {"max_len": FOLDS[-1] * longest + 1}),
        "learned": PartSettings("learned", {"max_len": longest + 1}),
        "difference": PartSettings("difference"),
        "shaw": PartSettings("shaw"),
        "t5": PartSettings("t5"),
        "alibi": PartSettings("alibi"),
        "rotary": PartSettings("rotary"),
    }


@dataclass(frozen=True)
class LengthResult:
    """One model on texts of one length."""

    length: int
    loss: float  # mean −log p of a token
    accuracy: float
    least: float  # the loss of a model that knows the rule
    by_position: list[float]


@dataclass(frozen=True)
class TrainedEncoding:
    """One encoding, one seed; `refused` says why a length is not defined."""

    scheme: str
    seed: int
    results: list[LengthResult]
    refused: dict[int, str]


@dataclass(frozen=True)
class LengthReport:
    """One encoding at one length: means over seeds, None where it is not defined."""

    length: int
    loss: MeanStd | None
    accuracy: MeanStd | None
    ratio: MeanStd | None  # of the loss to that at length n, seed by seed


@dataclass(frozen=True)
class SchemeReport:
    """One encoding at all lengths."""

    name: str
    lengths: list[LengthReport]
    # The loss at each position, mean over seeds, at the longest length for which the encoding is defined.
    by_position: list[float] = field(metadata={"json": "by_place"})
    refused: str | None


@dataclass(frozen=True)
class ExtrapolateStudy:
    """All encodings."""

    settings: ExtrapolateSettings
    least: dict[int, float]
    schemes: list[SchemeReport]
    signature: dict[str, Any] = field(default_factory=dict)


def run(
    names: list[str], settings: ExtrapolateSettings, device: torch.device, bar: ProgressBar = no_progress
) -> ExtrapolateStudy:
    """Train and evaluate each encoding with each seed, one after another, and summarise."""
    check_extrapolate(settings)
    parts = {name: choose(schemes(settings.longest), name, "scheme") for name in names or schemes(settings.longest)}
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    jobs = [(name, part, seed) for name, part in parts.items() for seed in seeds]
    with one_thread():
        progress = bar(jobs, len(jobs), "training")
        trained = [train_scheme(name, part, seed, settings, device) for name, part, seed in progress]
        signed = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    return summarise(trained, settings, signed)


def check_extrapolate(settings: ExtrapolateSettings) -> None:
    """Raise ValueError for settings with which nothing could be measured."""
    choose(TASKS, settings.task, "task")
    if settings.longest < 4 or settings.steps < 1 or settings.n_seeds < 1:
        got = f"{settings.longest}, {settings.steps} and {settings.n_seeds}"
        raise ValueError(f"length must be 4 or more, steps and seeds 1 or more, got {got}")
    if settings.task == "copy" and FOLDS[-1] * settings.longest > TASKS["copy"].n_symbols:
        most = TASKS["copy"].n_symbols // FOLDS[-1]
        raise ValueError(f"length must be {most} or less, as no symbol is copied twice, got {settings.longest}")


def train_scheme(
    name: str, part: PartSettings, seed: int, settings: ExtrapolateSettings, device: torch.device
) -> TrainedEncoding:
    """Train one model at lengths up to n, and evaluate it at n, 2n, 3n and 4n."""
    task = TASKS[settings.task]
    torch.manual_seed(seed)
    model = build_model(model_settings(settings, part), (task.vocab_size, task.vocab_size)).to(device).train()
    draw = partial(training_batch, task, rows=settings.rows, longest=settings.longest)
    fit(model, draw, seed, settings.steps, settings.lr)
    model.eval()
    results, refused = [], {}
    for length in (fold * settings.longest for fold in FOLDS):
        try:
            results.append(evaluate(model, task, length, settings.judged))
        except ValueError as error:
            refused[length] = str(error)
    return TrainedEncoding(name, seed, results, refused)


@torch.no_grad()
def evaluate(model: Seq2Seq, task: Sequences, length: int, n: int) -> LengthResult:
    """Measure the loss on texts that are the same for all models, under teacher forcing."""
    src, tgt = task.draw(np.random.default_rng([length, 2]), n, length)
    device = next(model.parameters()).device
    losses, right = [], []
    for at in range(0, n, EVAL_ROWS):
        batch = eval_batch(src[at : at + EVAL_ROWS], tgt[at : at + EVAL_ROWS]).to(device)
        loss, accuracy = token_losses(model(batch), batch)
        losses.append(loss * len(batch.tgt.inputs))
        right.append(accuracy * len(batch.tgt.inputs))
    by_position, accuracy = torch.stack(losses).sum(dim=0) / n, torch.stack(right).sum(dim=0) / n
    return LengthResult(
        length, float(by_position.mean()), float(accuracy.mean()), task.least_loss(tgt), by_position.tolist()
    )


def model_settings(settings: ExtrapolateSettings, part: PartSettings) -> ModelSettings:
    """Return a small pre-norm Transformer with one encoding; none needs a warm-up of its own."""
    return ModelSettings(
        n_encoder_layers=settings.n_encoder_layers,
        n_decoder_layers=settings.n_decoder_layers,
        d_model=settings.d_model,
        n_heads=settings.n_heads,
        d_ff=settings.d_ff,
        norm_place="before",
        dropout=0.0,
        tie="inputs" if part.options.get("join") == "concatenate" else "all",
        position=part,
    )


def summarise(
    trained: list[TrainedEncoding], settings: ExtrapolateSettings, signed: Mapping[str, Any]
) -> ExtrapolateStudy:
    """Take means over seeds."""
    names = list(dict.fromkeys(each.scheme for each in trained))
    least = {result.length: result.least for each in trained for result in each.results}
    reports = [_report(name, [each for each in trained if each.scheme == name], settings) for name in names]
    return ExtrapolateStudy(settings, dict(sorted(least.items())), reports, dict(signed))


def _report(name: str, runs: list[TrainedEncoding], settings: ExtrapolateSettings) -> SchemeReport:
    lengths = [_length(runs, fold * settings.longest, settings.longest) for fold in FOLDS]
    farthest = [run.results[-1].by_position for run in runs if run.results]
    by_position = np.mean(farthest, axis=0).tolist() if farthest else []
    refused = next((reason for run in runs for reason in run.refused.values()), None)
    return SchemeReport(name, lengths, by_position, refused)


def _length(runs: list[TrainedEncoding], length: int, longest: int) -> LengthReport:
    by_seed = [{each.length: each for each in run.results} for run in runs]
    if any(length not in results for results in by_seed):
        return LengthReport(length, None, None, None)
    here = [results[length] for results in by_seed]
    ratios = [results[length].loss / results[longest].loss for results in by_seed]
    return LengthReport(
        length, mean_std([each.loss for each in here]), mean_std([each.accuracy for each in here]), mean_std(ratios)
    )


MARKS = ["-", "--", ":"]
STEEP = 8.0  # ratio above which the scale is logarithmic


@in_style
def figure(study: ExtrapolateStudy) -> "Figure":
    """Draw the loss relative to that at n for each length, and the loss at each position of the longest texts."""
    drawing = new_figure(figsize=(10, 4.2))
    ratios, positions = drawing.subplots(1, 2)
    for at, scheme in enumerate(study.schemes):
        style = MARKS[at // 7 % len(MARKS)]
        _draw_ratios(ratios, scheme, style)
        positions.plot(range(1, len(scheme.by_position) + 1), scheme.by_position, style, linewidth=1.2)
    ratios.axhline(1.0, color="black", linewidth=0.5)
    ratios.set(title="Loss relative to that at n", xlabel="length, in n", ylabel="ratio", xticks=[1, 2, 3, 4])
    if ratios.get_ylim()[1] > STEEP:
        ratios.set_yscale("log")
    ratios.legend(fontsize="x-small", ncols=2)
    positions.axvline(study.settings.longest, color="black", linewidth=0.5)
    positions.set(title="−log p at each position; trained up to the line", xlabel="position")
    return drawing


def _draw_ratios(axes: "Axes", scheme: SchemeReport, style: str) -> None:
    known = [(fold, length.ratio) for fold, length in enumerate(scheme.lengths, start=1) if length.ratio is not None]
    folds, means = [fold for fold, _ in known], [ratio.mean for _, ratio in known]
    axes.errorbar(
        folds,
        means,
        yerr=[ratio.std for _, ratio in known],
        fmt=f"o{style}",
        markersize=3,
        linewidth=1.2,
        label=scheme.name if len(known) == len(scheme.lengths) else f"{scheme.name} (ends at {folds[-1]}n)",
    )


def tables(study: ExtrapolateStudy) -> dict[str, Table]:
    """Return loss and accuracy of each encoding at each length."""
    settings = study.settings
    least = ", ".join(f"{loss:.3f} at {length}" for length, loss in study.least.items())
    caption = (
        "Loss: mean −log p of a token, ± standard deviation over seeds; then the loss relative to that at n, then the "
        f"accuracy of the most likely symbol. The lowest possible loss: {least}."
    )
    title = f"Task {settings.task}, trained at lengths up to n = {settings.longest}, {settings.n_seeds} seeds"
    table = Table(title=title, caption=caption, **QUIET)
    table.add_column("encoding", no_wrap=True)
    for fold, length in enumerate(study.schemes[0].lengths, start=1):
        times = "n" if fold == 1 else f"{fold}n"
        table.add_column(f"{times} = {length.length}", justify="right")
    for scheme in study.schemes:
        table.add_row(scheme.name, *(_cell(length) for length in scheme.lengths))
    return {"losses": table}


def _cell(length: LengthReport) -> str:
    if length.loss is None or length.ratio is None or length.accuracy is None:
        return "not defined"
    return f"{length.loss.format(3)} · ×{length.ratio.mean:.2f} · {length.accuracy.mean:.0%}"
