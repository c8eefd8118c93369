"""`regard study norms`: layer norm in recurrent cells by learning rate, batch against layer norm by batch size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from rich.table import Table

from regard.batch import Batch
from regard.build import build_model
from regard.config import ModelSettings, PartSettings
from regard.model import Seq2Seq
from regard.plot.style import in_style, new_figure
from regard.study.repeats import MeanStd, mean_std, signature
from regard.study.sequences import Copy, eval_batch, fit, judge_tokens, training_batch
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PARTS = {"states": ("none", "layer"), "batches": ("layer", "batch")}  # the norms that each part compares
# What its models copy; the second is learned from single texts too.
TASKS = {"states": Copy(n_symbols=20), "batches": Copy(n_symbols=8)}


@dataclass(frozen=True)
class NormsSettings:
    """The models and their training."""

    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)  # learning rates of the recurrent models,
    rows: int = 32  # the texts in their batches,
    longest: int = 8  # and the symbols of a text
    batches: tuple[int, ...] = (1, 2, 8, 32, 128)  # texts in a batch of the Transformers,
    lr: float = 3e-3  # their learning rate,
    short: int = 4  # and the symbols of a text
    d_model: int = 32
    steps: int = 800
    judged: int = 256  # test texts
    n_seeds: int = 3
    seed: int = 0  # of the first


SETTINGS = NormsSettings()
QUICK = replace(SETTINGS, rates=(3e-3, 3e-2), batches=(1, 32), steps=150, judged=64, n_seeds=1)


@dataclass(frozen=True)
class NormTrial:
    """One model: the part of the study, its norm, its learning rate, and the texts in a batch with their length."""

    part: str
    norm: str
    lr: float
    rows: int
    longest: int


@dataclass(frozen=True)
class NormResult:
    """Mean −log p of a test symbol, and the share of the most likely that is right.

    `in_training` is the loss as in training, on batches of the size it was trained with; it differs where the norm
    then uses the batch's own statistics.
    """

    loss: float
    accuracy: float
    in_training: float


@dataclass(frozen=True)
class NormReport:
    """One model over all seeds."""

    trial: NormTrial
    loss: MeanStd
    accuracy: MeanStd
    in_training: MeanStd


@dataclass(frozen=True)
class NormsStudy:
    """Both parts of the study; a model that does not look at its source has the loss in `blind`."""

    settings: NormsSettings
    blind: dict[str, float]
    reports: list[NormReport]
    signature: dict[str, Any] = field(default_factory=dict)


def run(settings: NormsSettings, device: torch.device, bar: ProgressBar = no_progress) -> NormsStudy:
    """Train a model for each norm, rate or batch size, and seed, and judge it."""
    check_norms(settings)
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    all_trials = list(trials(settings))
    jobs = [(trial, seed) for trial in all_trials for seed in seeds]
    results: dict[NormTrial, list[NormResult]] = {trial: [] for trial in all_trials}
    with one_thread():
        for trial, seed in bar(jobs, len(jobs), "training"):
            results[trial].append(measure(trial, seed, settings, device))
        signed = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    lengths = {"states": settings.longest, "batches": settings.short}
    blind = {name: TASKS[name].blind_loss(length) for name, length in lengths.items()}
    return NormsStudy(settings, blind, [_over_seeds(trial, found) for trial, found in results.items()], signed)


def check_norms(settings: NormsSettings) -> None:
    """Raise ValueError for settings with which nothing could be measured."""
    if min(settings.steps, settings.n_seeds, *settings.batches) < 1:
        got = f"{settings.steps}, {settings.n_seeds} and {settings.batches}"
        raise ValueError(f"steps, seeds and batch sizes must be 1 or more, got {got}")
    if min(settings.rates) <= 0.0:
        raise ValueError(f"learning rates must be more than 0, got {settings.rates}")


def trials(settings: NormsSettings) -> Iterator[NormTrial]:
    """Yield all models of the study but for their seeds."""
    for norm in PARTS["states"]:
        yield from (NormTrial("states", norm, rate, settings.rows, settings.longest) for rate in settings.rates)
    for norm in PARTS["batches"]:
        yield from (NormTrial("batches", norm, settings.lr, rows, settings.short) for rows in settings.batches)


def measure(trial: NormTrial, seed: int, settings: NormsSettings, device: torch.device) -> NormResult:
    """Train one model on copies and judge it; texts depend on the seed and the batch size alone."""
    task = TASKS[trial.part]
    torch.manual_seed(seed)
    model = build_model(model_settings(trial, settings), (task.vocab_size, task.vocab_size)).to(device).train()
    draw = partial(training_batch, task, rows=trial.rows, longest=trial.longest)
    fit(model, draw, seed, settings.steps, trial.lr)
    src, tgt = task.draw(np.random.default_rng([trial.longest, 4]), settings.judged, trial.longest)
    loss, accuracy = judge_tokens(model.eval(), [eval_batch(src, tgt)])
    batches = [eval_batch(src[n : n + trial.rows], tgt[n : n + trial.rows]) for n in range(0, len(src), trial.rows)]
    return NormResult(loss, accuracy, judge_in_training(model, batches))


def judge_in_training(model: Seq2Seq, batches: list[Batch]) -> float:
    """Return the loss as training sees it: a norm takes the statistics of each batch."""
    loss, _ = judge_tokens(model.train(), batches)
    model.eval()
    return loss


def model_settings(trial: NormTrial, settings: NormsSettings) -> ModelSettings:
    """Return a recurrent model with one layer a side, or a pre-norm Transformer with two; none has dropout."""
    if trial.part == "states":
        return ModelSettings(
            family="recurrent",
            n_encoder_layers=1,
            n_decoder_layers=1,
            d_model=settings.d_model,
            n_heads=1,
            state_norm="layer" if trial.norm == "layer" else "none",
            dropout=0.0,
            attention=PartSettings("additive"),
            position=PartSettings("none"),
        )
    return ModelSettings(
        n_encoder_layers=2,
        n_decoder_layers=2,
        d_model=settings.d_model,
        n_heads=4,
        d_ff=2 * settings.d_model,
        norm=trial.norm,
        norm_place="before",
        dropout=0.0,
    )


def _over_seeds(trial: NormTrial, found: list[NormResult]) -> NormReport:
    measures = ("loss", "accuracy", "in_training")
    return NormReport(trial, *(mean_std([getattr(each, name) for each in found]) for name in measures))


def part(study: NormsStudy, name: str, norm: str) -> list[NormReport]:
    """Return the reports of one part and norm, by learning rate or batch size."""
    return [each for each in study.reports if (each.trial.part, each.trial.norm) == (name, norm)]


@in_style
def figure(study: NormsStudy) -> "Figure":
    """Draw the loss by learning rate, and by batch size."""
    drawing = new_figure(figsize=(9.2, 3.8))
    by_rate, by_size = drawing.subplots(1, 2)
    for norm, label in (("none", "no norm"), ("layer", "layer norm in the cells")):
        _line(by_rate, [(each.trial.lr, each.loss) for each in part(study, "states", norm)], label)
    by_rate.set(title="Recurrent model", xlabel="learning rate", ylabel="−log p of a symbol", xscale="log")
    for norm, label in (("layer", "layer norm"), ("batch", "batch norm, running means")):
        _line(by_size, [(each.trial.rows, each.loss) for each in part(study, "batches", norm)], label)
    own = [(each.trial.rows, each.in_training) for each in part(study, "batches", "batch")]
    _line(by_size, own, "batch norm, as in training", "o--")
    by_size.set(title="Transformer", xlabel="texts in a batch", ylabel="−log p of a symbol", xscale="log")
    for axes in (by_rate, by_size):
        axes.legend(fontsize="small")
    return drawing


def _line(axes: Any, points: Sequence[tuple[float | int, MeanStd]], label: str, style: str = "o-") -> None:
    means, spread = [each.mean for _, each in points], [each.std for _, each in points]
    axes.errorbar([at for at, _ in points], means, yerr=spread, fmt=style, label=label)


def tables(study: NormsStudy) -> dict[str, Table]:
    """Return the losses by learning rate, and by batch size."""
    settings = study.settings
    losses = (
        f"Mean −log p of a test symbol · share of right symbols; {settings.n_seeds} seeds of {settings.steps} steps. "
        "Without looking at the source: {:.3f}."
    )
    caption = losses.format(study.blind["states"])
    states = Table(title="Layer normalisation in recurrent cells, by learning rate", caption=caption, **QUIET)
    for column in ("learning rate", "no norm", "layer norm"):
        states.add_column(column, justify="right", no_wrap=column == "learning rate")
    for plain, normalised in zip(*(part(study, "states", norm) for norm in PARTS["states"]), strict=True):
        states.add_row(f"{plain.trial.lr:g}", _cell(plain), _cell(normalised))
    own = "As in training: the loss with the statistics of each batch instead of running means."
    caption = f"{losses.format(study.blind['batches'])} {own}"
    batches = Table(title="Batch against layer normalisation, by batch size", caption=caption, **QUIET)
    for column in ("texts in a batch", "layer norm", "batch norm", "batch norm, as in training"):
        batches.add_column(column, justify="right")
    for layer, batch in zip(*(part(study, "batches", norm) for norm in PARTS["batches"]), strict=True):
        batches.add_row(str(layer.trial.rows), _cell(layer), _cell(batch), batch.in_training.format(3))
    return {"states": states, "batches": batches}


def _cell(report: NormReport) -> str:
    return f"{report.loss.format(3)} · {report.accuracy.mean:.0%}"
