"""`regard study residuals`: models trained with and without residual connections, by depth."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from regard.batch import make_source
from regard.build import build_model
from regard.config import ModelSettings
from regard.model import Transformer
from regard.plot.style import in_style, new_figure
from regard.study.no_residuals import without_residuals
from regard.study.repeats import MeanStd, mean_std, signature
from regard.study.sequences import FIRST_SYMBOL, Copy, eval_batch, fit, judge_tokens, training_batch
from regard.study.timing import one_thread
from regard.terminal import QUIET
from regard.trace.head_ablation import ProgressBar, no_progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SYMBOLS = Copy(n_symbols=20)
STREAMS = {"with residuals": True, "without": False}


@dataclass(frozen=True)
class ResidualsSettings:
    """The models and their training."""

    depths: tuple[int, ...] = (2, 4, 8, 12)  # layers of the encoder; the decoder has 1
    longest: int = 8  # symbols of a text
    d_model: int = 32
    steps: int = 600
    rows: int = 32  # texts in a batch
    judged: int = 256  # test texts
    lr: float = 4e-3
    n_seeds: int = 3
    seed: int = 0  # of the first


SETTINGS = ResidualsSettings()
QUICK = replace(SETTINGS, depths=(2, 8), steps=150, judged=64, n_seeds=1)


@dataclass(frozen=True)
class DepthResult:
    """One model: how far the tokens of a text differ in the encoder's output before training, and what it learned.

    `spread` is the share of the output's size that is not the mean over the text's tokens.
    """

    spread: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class DepthReport:
    """One depth, with residuals or without, over all seeds."""

    stream: str
    depth: int
    spread: MeanStd
    loss: MeanStd
    accuracy: MeanStd


@dataclass(frozen=True)
class ResidualsStudy:
    """All depths; a model that does not look at its source has the loss `blind_loss`."""

    settings: ResidualsSettings
    blind_loss: float
    reports: list[DepthReport]
    signature: dict[str, Any] = field(default_factory=dict)


def run(settings: ResidualsSettings, device: torch.device, bar: ProgressBar = no_progress) -> ResidualsStudy:
    """Train a model for each depth and seed, with residuals and without, and judge it."""
    if min(settings.steps, settings.n_seeds, *settings.depths) < 1:
        got = f"{settings.steps}, {settings.n_seeds} and {settings.depths}"
        raise ValueError(f"steps, seeds and depths must be 1 or more, got {got}")
    seeds = range(settings.seed, settings.seed + settings.n_seeds)
    found: dict[tuple[str, int], list[DepthResult]] = {(stream, n): [] for stream in STREAMS for n in settings.depths}
    jobs = [(*place, seed) for place in found for seed in seeds]
    with one_thread():
        for stream, depth, seed in bar(jobs, len(jobs), "training"):
            found[stream, depth].append(measure(STREAMS[stream], depth, seed, settings, device))
        signed = signature(str(device), seeds=settings.n_seeds, seed=settings.seed)
    blind = SYMBOLS.blind_loss(settings.longest)
    return ResidualsStudy(settings, blind, [_over_seeds(*place, each) for place, each in found.items()], signed)


def measure(
    has_residuals: bool, depth: int, seed: int, settings: ResidualsSettings, device: torch.device
) -> DepthResult:
    """Look at one model before training, train it on copies, and judge it; the texts depend on the seed alone."""
    model = make_model(has_residuals, depth, seed, settings).to(device).train()
    src, tgt = SYMBOLS.draw(np.random.default_rng([settings.longest, 5]), settings.judged, settings.longest)
    spread = token_spread(model, src)
    draw = partial(training_batch, SYMBOLS, rows=settings.rows, longest=settings.longest)
    fit(model, draw, seed, settings.steps, settings.lr)
    return DepthResult(spread, *judge_tokens(model.eval(), [eval_batch(src, tgt)]))


def make_model(has_residuals: bool, depth: int, seed: int, settings: ResidualsSettings) -> Transformer:
    """Build a pre-norm Transformer; without residuals it has the same parameters, drawn alike."""
    torch.manual_seed(seed)
    made = ModelSettings(
        n_encoder_layers=depth,
        n_decoder_layers=1,
        d_model=settings.d_model,
        n_heads=4,
        d_ff=2 * settings.d_model,
        norm_place="before",
        dropout=0.0,
    )
    model = build_model(made, (SYMBOLS.vocab_size, SYMBOLS.vocab_size))
    assert isinstance(model, Transformer), "the settings are those of a Transformer"
    if not has_residuals:
        without_residuals(model.encoder)
    return model


@torch.no_grad()
def token_spread(model: Transformer, src: NDArray[np.int64]) -> float:
    """Return how far the tokens of a text differ in the encoder's output, against the size of the output."""
    source = make_source((src + FIRST_SYMBOL).tolist()).to(next(model.parameters()).device)
    states = model.encode(source)
    return float((states - states.mean(dim=1, keepdim=True)).norm() / states.norm())


def _over_seeds(stream: str, depth: int, found: list[DepthResult]) -> DepthReport:
    measures = ("spread", "loss", "accuracy")
    return DepthReport(stream, depth, *(mean_std([getattr(each, name) for each in found]) for name in measures))


@in_style
def figure(study: ResidualsStudy) -> "Figure":
    """Draw the loss after training, and what there was before it, by depth."""
    drawing = new_figure(figsize=(9, 3.6))
    measures = {"loss": "Loss after training", "spread": "How far tokens differ before it"}
    for axes, (name, title) in zip(drawing.subplots(1, 2), measures.items(), strict=True):
        for stream in STREAMS:
            own = [each for each in study.reports if each.stream == stream]
            found = [getattr(each, name) for each in own]
            depths = [each.depth for each in own]
            axes.errorbar(depths, [each.mean for each in found], yerr=[each.std for each in found], fmt="o-")
        axes.set(title=title, xlabel="layers of the encoder", xticks=study.settings.depths)
    drawing.axes[0].legend(list(STREAMS), fontsize="small")
    drawing.axes[1].set_yscale("log")
    return drawing


def tables(study: ResidualsStudy) -> dict[str, Table]:
    """Return what each depth reaches, and how it began."""
    settings = study.settings
    caption = (
        f"Mean −log p of a test symbol · share of right symbols; {settings.n_seeds} seeds of {settings.steps} steps. "
        f"Without looking at the source: {study.blind_loss:.3f}. Before training: how far the tokens of a text differ "
        "in the encoder's output, against its size."
    )
    table = Table(title="Copies learned with and without residual connections, by depth", caption=caption, **QUIET)
    table.add_column("layers", justify="right", no_wrap=True)
    for column in (*STREAMS, *(f"{stream}, before training" for stream in STREAMS)):
        table.add_column(column, justify="right")
    for depth in settings.depths:
        own = [each for each in study.reports if each.depth == depth]
        learned = [f"{each.loss.format(3)} · {each.accuracy.mean:.0%}" for each in own]
        table.add_row(str(depth), *learned, *(f"{each.spread.mean:.0e}" for each in own))
    return {"depths": table}
