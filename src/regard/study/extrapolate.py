"""`study extrapolate`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from regard.build import build_model
from regard.config import ModelSettings, PartSettings, TrainSettings, choose
from regard.model import Seq2Seq
from regard.plot.style import Drawing, in_style
from regard.plot.terminal import QUIET
from regard.study.sequences import Chain, Copy, Sequences, judging_batch, learning_batch, token_losses
from regard.study.stats import Spread, signature, spread
from regard.study.timing import one_thread
from regard.train.loss import LossModule
from regard.train.step import learning_rate, make_optimiser, run_step, set_rate

TASKS: dict[str, Sequences] = {"chain": Chain(), "copy": Copy()}
FOLDS = (1, 2, 3, 4)  # times n
ROWS = 64  # texts that are judged at once


@dataclass(frozen=True)
class ExtrapolateSettings:
    """How the models are made, and how they learn."""

    task: str = "chain"
    longest: int = 16  # n, in symbols
    steps: int = 300
    rows: int = 64  # texts in a batch
    judged: int = 256  # texts of each length
    lr: float = 8e-3
    n_seeds: int = 3
    seed: int = 0  # of the first
    n_encoder_layers: int = 1
    n_decoder_layers: int = 2
    d_model: int = 32
    n_heads: int = 4
    d_ff: int = 64


# In which each task can be learned. To copy, layers that read must know what stands beside a symbol, then the symbol.
USUAL = {
    "chain": ExtrapolateSettings(),
    "copy": ExtrapolateSettings(
        "copy", steps=1500, lr=2e-3, n_encoder_layers=2, n_decoder_layers=2, d_model=64, d_ff=128
    ),
}
QUICK = {"n_seeds": 1, "judged": 64, "steps": 60}


def make_settings(
    task: str, longest: int, steps: int | None, n_seeds: int, seed: int, quick: bool
) -> ExtrapolateSettings:
    """Gives settings in which a task can be learned, or with `quick` begun."""
    made = replace(choose(USUAL, task, "task"), longest=longest, n_seeds=n_seeds, seed=seed)
    made = replace(made, **QUICK) if quick else made
    return made if steps is None else replace(made, steps=steps)


def schemes(longest: int) -> dict[str, PartSettings]:
    """Gives the schemes that a text model can use; tables are as long as they must be.

    A learned table ends with the texts that it learns from, with a place more for the beginning. The half wave must be
    told the longest text there will ever be, so it is.
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
class Judged:
    """One model on texts of one length."""

    length: int
    loss: float  # mean −log p of a token
    accuracy: float
    least: float  # the loss of who knows the rule
    by_place: list[float]


@dataclass(frozen=True)
class Trained:
    """One scheme, one seed; a length for which the scheme is not defined says why."""

    scheme: str
    seed: int
    judged: list[Judged]
    refused: dict[int, str]


@dataclass(frozen=True)
class Length:
    """One scheme at one length: means over seeds, None where it is not defined."""

    length: int
    loss: Spread | None
    accuracy: Spread | None
    ratio: Spread | None  # of the loss to that at length n, seed by seed


@dataclass(frozen=True)
class SchemeReport:
    """One scheme."""

    name: str
    lengths: list[Length]
    by_place: list[float]  # mean over seeds at the longest length for which it is defined
    refused: str | None


@dataclass(frozen=True)
class ExtrapolateStudy:
    """All schemes."""

    settings: ExtrapolateSettings
    least: dict[int, float]
    schemes: list[SchemeReport]
    signature: dict[str, Any] = field(default_factory=dict)


def run_extrapolate(
    names: list[str], settings: ExtrapolateSettings, device: torch.device
) -> Iterator[Trained | ExtrapolateStudy]:
    """Trains and judges each scheme with each seed, one after another, and in the end sums up."""
    check_extrapolate(settings)
    parts = {name: choose(schemes(settings.longest), name, "scheme") for name in names or schemes(settings.longest)}
    found: list[Trained] = []
    with one_thread():
        for name, part in parts.items():
            for seed in range(settings.seed, settings.seed + settings.n_seeds):
                found.append(train_scheme(name, part, seed, settings, device))
                yield found[-1]
        told = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    yield sum_up(found, settings, told)


def check_extrapolate(settings: ExtrapolateSettings) -> None:
    """Raises ValueError for settings with which nothing could be measured."""
    choose(TASKS, settings.task, "task")
    if settings.longest < 4 or settings.steps < 1 or settings.n_seeds < 1:
        got = f"{settings.longest}, {settings.steps} and {settings.n_seeds}"
        raise ValueError(f"length must be 4 or more, steps and seeds 1 or more, got {got}")
    if settings.task == "copy" and FOLDS[-1] * settings.longest > TASKS["copy"].n_symbols:
        most = TASKS["copy"].n_symbols // FOLDS[-1]
        raise ValueError(f"length must be {most} or less, as no symbol is copied twice, got {settings.longest}")


def train_scheme(
    name: str, part: PartSettings, seed: int, settings: ExtrapolateSettings, device: torch.device
) -> Trained:
    """Trains one model at lengths up to n, and judges it at n, 2n, 3n and 4n."""
    task = TASKS[settings.task]
    torch.manual_seed(seed)
    model = build_model(model_settings(settings, part), (task.vocab_size, task.vocab_size)).to(device).train()
    learn(model, task, seed, settings)
    model.eval()
    judged, refused = [], {}
    for length in (fold * settings.longest for fold in FOLDS):
        try:
            judged.append(judge(model, task, length, settings.judged))
        except ValueError as error:
            refused[length] = str(error)
    return Trained(name, seed, judged, refused)


def learn(model: Seq2Seq, task: Sequences, seed: int, settings: ExtrapolateSettings) -> None:
    """Takes all steps, with a cosine to 0; the texts depend on the seed alone."""
    train = TrainSettings(
        lr=settings.lr,
        schedule="cosine",
        warmup=settings.steps // 10,
        max_steps=settings.steps,
        precision="float32",
        label_smoothing=0.0,
    )
    learner, optimiser, chance = LossModule(model, 0.0), make_optimiser(model, train), np.random.default_rng([seed, 1])
    device = next(model.parameters()).device
    for step in range(1, settings.steps + 1):
        batch = learning_batch(task, chance, settings.rows, settings.longest).to(device)
        set_rate(optimiser, learning_rate(step, train))
        run_step(learner, optimiser, [batch], 1 / batch.tgt.n_tokens, train)


@torch.no_grad()
def judge(model: Seq2Seq, task: Sequences, length: int, n: int) -> Judged:
    """Reads texts that are the same for all models, with the true symbols before each."""
    src, tgt = task.draw(np.random.default_rng([length, 2]), n, length)
    device = next(model.parameters()).device
    losses, right = [], []
    for at in range(0, n, ROWS):
        batch = judging_batch(src[at : at + ROWS], tgt[at : at + ROWS]).to(device)
        loss, accuracy = token_losses(model(batch), batch)
        losses.append(loss * len(batch.tgt.inputs))
        right.append(accuracy * len(batch.tgt.inputs))
    by_place, accuracy = torch.stack(losses).sum(dim=0) / n, torch.stack(right).sum(dim=0) / n
    return Judged(length, float(by_place.mean()), float(accuracy.mean()), task.least_loss(tgt), by_place.tolist())


def model_settings(settings: ExtrapolateSettings, part: PartSettings) -> ModelSettings:
    """Gives a small Transformer with one scheme; norms come first, so that no scheme needs a warm-up of its own."""
    return ModelSettings(
        n_encoder_layers=settings.n_encoder_layers,
        n_decoder_layers=settings.n_decoder_layers,
        d_model=settings.d_model,
        n_heads=settings.n_heads,
        d_ff=settings.d_ff,
        norm_place="before",
        dropout=0.0,
        position=part,
    )


def sum_up(found: list[Trained], settings: ExtrapolateSettings, told: Mapping[str, Any]) -> ExtrapolateStudy:
    """Takes means over seeds."""
    names = list(dict.fromkeys(each.scheme for each in found))
    least = {each.length: each.least for run in found for each in run.judged}
    reports = [_report(name, [run for run in found if run.scheme == name], settings) for name in names]
    return ExtrapolateStudy(settings, dict(sorted(least.items())), reports, dict(told))


def _report(name: str, runs: list[Trained], settings: ExtrapolateSettings) -> SchemeReport:
    lengths = [_length(runs, fold * settings.longest, settings.longest) for fold in FOLDS]
    farthest = [run.judged[-1].by_place for run in runs if run.judged]
    by_place = np.mean(farthest, axis=0).tolist() if farthest else []
    refused = next((reason for run in runs for reason in run.refused.values()), None)
    return SchemeReport(name, lengths, by_place, refused)


def _length(runs: list[Trained], length: int, longest: int) -> Length:
    by_seed = [{each.length: each for each in run.judged} for run in runs]
    if any(length not in judged for judged in by_seed):
        return Length(length, None, None, None)
    here = [judged[length] for judged in by_seed]
    ratios = [judged[length].loss / judged[longest].loss for judged in by_seed]
    return Length(
        length, spread([each.loss for each in here]), spread([each.accuracy for each in here]), spread(ratios)
    )


MARKS = ["-", "--", ":"]
STEEP = 8.0  # ratio from which on a scale of logarithms tells more


@in_style
def draw_extrapolate(study: ExtrapolateStudy) -> Figure:
    """Draws the loss against that at n for each length, and the loss at each place of the longest texts."""
    figure = Drawing(figsize=(10, 4.2))
    ratios, places = figure.subplots(1, 2)
    for at, scheme in enumerate(study.schemes):
        style = MARKS[at // 7 % len(MARKS)]
        _draw_ratios(ratios, scheme, style)
        places.plot(range(1, len(scheme.by_place) + 1), scheme.by_place, style, linewidth=1.2)
    ratios.axhline(1.0, color="black", linewidth=0.5)
    ratios.set(title="Loss against that at n", xlabel="length, in n", ylabel="ratio", xticks=[1, 2, 3, 4])
    if ratios.get_ylim()[1] > STEEP:
        ratios.set_yscale("log")
    ratios.legend(fontsize="x-small", ncols=2)
    places.axvline(study.settings.longest, color="black", linewidth=0.5)
    places.set(title="−log p at each place; learned from places up to the line", xlabel="place")
    return figure


def _draw_ratios(axes: Axes, scheme: SchemeReport, style: str) -> None:
    known = [(fold, length.ratio) for fold, length in enumerate(scheme.lengths, start=1) if length.ratio is not None]
    folds, means = [fold for fold, _ in known], [ratio.mean for _, ratio in known]
    axes.errorbar(
        folds,
        means,
        yerr=[ratio.spread for _, ratio in known],
        fmt=f"o{style}",
        markersize=3,
        linewidth=1.2,
        label=scheme.name if len(known) == len(scheme.lengths) else f"{scheme.name} (ends at {folds[-1]}n)",
    )


def extrapolate_table(study: ExtrapolateStudy) -> Table:
    """Lists loss and accuracy of each scheme at each length."""
    settings = study.settings
    least = ", ".join(f"{loss:.3f} at {length}" for length, loss in study.least.items())
    caption = (
        "Loss: mean −log p of a token, ± standard deviation over seeds; then its ratio to the loss at n, then the "
        f"share of tokens that the likeliest symbol gets right. The least loss there can be: {least}."
    )
    title = f"Task {settings.task}, learned at lengths up to n = {settings.longest}, {settings.n_seeds} seeds"
    table = Table(title=title, caption=caption, **QUIET)
    table.add_column("scheme", no_wrap=True)
    for fold, length in enumerate(study.schemes[0].lengths, start=1):
        times = "n" if fold == 1 else f"{fold}n"
        table.add_column(f"{times} = {length.length}", justify="right")
    for scheme in study.schemes:
        table.add_row(scheme.name, *(_cell(length) for length in scheme.lengths))
    return table


def _cell(length: Length) -> str:
    if length.loss is None or length.ratio is None or length.accuracy is None:
        return "not defined"
    return f"{said(length.loss, 3)} · ×{length.ratio.mean:.2f} · {length.accuracy.mean:.0%}"


def said(value: Spread, digits: int) -> str:
    """Writes a mean with its deviation."""
    deviation = "" if value.n < 2 else f" ± {value.spread:.{digits}f}"
    return f"{value.mean:.{digits}f}{deviation}"
